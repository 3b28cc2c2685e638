"""Trials of sweeps."""

from cellbed.experiments.sweep import runner as runner
from cellbed.experiments.sweep.library import Execution as Execution
from cellbed.experiments.sweep.store import DATASET as DATASET
from cellbed.experiments.sweep.store import results_in as results_in
from cellbed.experiments.sweep.trials import Plan as Plan
from cellbed.testbed.testbed import machine as machine
from cellbed.testbed.testbed import refusal_to_nodes as refusal_to_nodes
from cellbed.workloads.registry import virtual_model as virtual_model
