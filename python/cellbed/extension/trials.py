"""Kinds of trials of sweeps."""

from cellbed.experiments.sweep.kinds import Content as Content
from cellbed.experiments.sweep.kinds import Input as Input
from cellbed.experiments.sweep.kinds import Lacks as Lacks
from cellbed.experiments.sweep.kinds import TrialKind as TrialKind
from cellbed.experiments.sweep.kinds import content_hash as content_hash
from cellbed.experiments.sweep.library import Execution as Execution
from cellbed.experiments.sweep.trials import Plan as Plan
from cellbed.experiments.sweep.virtual import VirtualPool as VirtualPool
from cellbed.measure.factors import Study as Study
from cellbed.scenario.expectations import expectations as expectations
