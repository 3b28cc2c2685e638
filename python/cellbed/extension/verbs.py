"""Verbs: common options, progress and processors."""

from cellbed.cli.options import Open as Open
from cellbed.cli.sweep import Terminal as Terminal
from cellbed.cli.tables import print_table as print_table
from cellbed.cli.verbs import name_values as name_values
from cellbed.support.standard_streams import StatusLine as StatusLine
from cellbed.support.worker_pool import WorkerPool as WorkerPool
from cellbed.support.worker_pool import processors as processors
