"""Scenarios from Compose files, Kubernetes manifests and configurations of Continuum."""

from cellbed.importing.compose import read_compose
from cellbed.importing.continuum import read_continuum
from cellbed.importing.documents import ImportedFileError
from cellbed.importing.kubernetes import read_manifests
from cellbed.importing.writing import Choices, Written, build, parse_classes, parse_images, save, write

__all__ = [
    "Choices",
    "ImportedFileError",
    "Written",
    "build",
    "parse_classes",
    "parse_images",
    "read_compose",
    "read_continuum",
    "read_manifests",
    "save",
    "write",
]  # fmt: skip
