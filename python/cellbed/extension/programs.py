"""Programs of nodes in virtual time."""

from cellbed.workloads.browsing.virtual import Browser as Browser
from cellbed.workloads.browsing.virtual import Files as Files
from cellbed.workloads.video import player as player
from cellbed.workloads.video.virtual import play as play
from cellbed.workloads.virtual.world import Program as Program
from cellbed.workloads.virtual.world import World as World
from cellbed.workloads.web import pages as pages
from cellbed.workloads.web.virtual import Page as Page
from cellbed_node import machine as machine
from cellbed_node.video.load import Chunk as Chunk
from cellbed_node.web.loading import PageObject as PageObject
