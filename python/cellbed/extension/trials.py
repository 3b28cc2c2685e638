"""Trials of sweeps, and kinds of trials."""

from cellbed.experiments.sweep import runner as runner
from cellbed.experiments.sweep.kinds import Content as Content
from cellbed.experiments.sweep.kinds import Input as Input
from cellbed.experiments.sweep.kinds import Lacks as Lacks
from cellbed.experiments.sweep.kinds import TrialKind as TrialKind
from cellbed.experiments.sweep.kinds import content_hash as content_hash
from cellbed.experiments.sweep.library import Execution as Execution
from cellbed.experiments.sweep.store import DATASET as DATASET
from cellbed.experiments.sweep.store import results_in as results_in
from cellbed.experiments.sweep.trials import Plan as Plan
from cellbed.experiments.sweep.virtual import VirtualPool as VirtualPool
from cellbed.measure.factors import Study as Study
from cellbed.scenario.expectations import expectations as expectations
from cellbed.testbed.testbed import machine as machine
from cellbed.testbed.testbed import refusal_to_nodes as refusal_to_nodes
from cellbed.workloads.registry import virtual_model as virtual_model
