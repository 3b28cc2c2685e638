"""Scenarios from Compose files and Kubernetes manifests."""

from cellbed.importing.compose import read_compose
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
    "read_manifests",
    "save",
    "write",
]  # fmt: skip
