"""One function per command: it computes and returns, `daft_twinwds.cli` prints."""
