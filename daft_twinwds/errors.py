"""Every error that daft_twinwds raises for data, as opposed to wrong arguments.

::

    TwinWebDatasetError
    |-- LayoutError             folders, manifests, shards that are not there
    |-- TarFormatError          a tar that cannot be read by byte range
    |-- AlignmentError          twins that disagree on their keys
    |-- SchemaError             a text member that does not fit its column
    |-- DecodeError             a picture that cannot be turned into pixels
    |-- StorageError            bytes that cannot be read or written
    |-- ResumeError             a saved state that belongs to something else
    `-- MissingDependencyError  an extra that is not installed (also an ImportError)

Wrong arguments raise ``ValueError`` or ``TypeError``. A message says where, what was found, what
was expected and what to do: Daft keeps only the text of an error that a task raises.
"""

__all__ = [
    "AlignmentError",
    "DecodeError",
    "LayoutError",
    "MissingDependencyError",
    "ResumeError",
    "SchemaError",
    "StorageError",
    "TarFormatError",
    "TwinWebDatasetError",
]


class TwinWebDatasetError(Exception):
    """Base of all errors about data; catching it catches everything below."""


class LayoutError(TwinWebDatasetError):
    """The folders, the manifest or the list of shards do not make a twin dataset."""


class TarFormatError(TwinWebDatasetError):
    """A tar is compressed, truncated, damaged, sparse or not a tar at all."""

    offset: int | None = None
    """Byte offset of the header at fault; None where it is the file as a whole."""


class AlignmentError(TwinWebDatasetError):
    """The twins of a shard do not hold the same keys, or one holds a key twice."""


class SchemaError(TwinWebDatasetError):
    """A member's content does not fit the column that was inferred or declared for it."""


class DecodeError(TwinWebDatasetError):
    """A picture is damaged, truncated, too large or of an unknown format."""


class StorageError(TwinWebDatasetError):
    """A file or byte range cannot be read, or came back short."""


class ResumeError(TwinWebDatasetError):
    """A saved state does not belong to this selection, seed or batch geometry."""


class MissingDependencyError(TwinWebDatasetError, ImportError):
    """An optional package is needed; the message holds the pip command."""
