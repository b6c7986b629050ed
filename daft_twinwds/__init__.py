"""Query twin WebDatasets like a table with Daft, then train on what the query kept."""

import daft

from daft_twinwds.partition import Partition
from daft_twinwds.query.catalog import TwinTable, TwinUnion, attach
from daft_twinwds.query.read import read_twin_webdataset
from daft_twinwds.query.report import reset_scan_report, scan_report
from daft_twinwds.query.sink import write_twin_webdataset

__all__ = [
    "Partition",
    "TwinTable",
    "TwinUnion",
    "attach",
    "read_twin_webdataset",
    "reset_scan_report",
    "scan_report",
    "write_twin_webdataset",
]

if not hasattr(daft, "read_twin_webdataset"):
    daft.read_twin_webdataset = read_twin_webdataset
