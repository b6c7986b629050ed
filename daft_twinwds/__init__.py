"""Query twin WebDatasets like a table with Daft, then train on what the query kept."""

import daft

from daft_twinwds.partition import Partition
from daft_twinwds.query.read import read_twin_webdataset
from daft_twinwds.query.report import reset_scan_report, scan_report

__all__ = ["Partition", "read_twin_webdataset", "reset_scan_report", "scan_report"]

if not hasattr(daft, "read_twin_webdataset"):
    daft.read_twin_webdataset = read_twin_webdataset
