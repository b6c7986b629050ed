"""``python -m daft_twinwds``: the same as ``daft-twinwds``."""

from daft_twinwds.cli import main

main(prog_name="daft-twinwds")
