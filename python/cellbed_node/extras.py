"""The commands that install optional Python packages: extras of cellbed."""

_WEIGHTS = "mediapipe==0.10.14 rapidocr-onnxruntime==1.4.4"
"""Packages of which only trained networks are read: their dependencies are large or old."""


def remedy(extra: str) -> str:
    """Return the command that installs an extra of cellbed."""
    command = f"pip install 'cellbed[{extra}]'"
    return f"{command} && pip install --no-deps {_WEIGHTS}" if extra == "vision" else command
