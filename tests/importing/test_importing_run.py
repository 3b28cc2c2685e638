"""A Compose application and a Kubernetes manifest of local images, brought up over an emulated link."""

from pathlib import Path

import polars as pl
import pytest

from container_images import image, needs_containers, own_folders
from in_process import cellbed
from run_commands import only_folder, run

__all__ = ["image", "own_folders"]

pytestmark = [pytest.mark.needs_tun, needs_containers]

APPLICATION = """
services:
  web:
    image: IMAGE
    user: root
    command: httpd -f -p 8080 -h /www
    volumes: ["./www:/www:ro"]
    ports: ["80:8080"]
    healthcheck: {test: wget -q -O /dev/null http://127.0.0.1:8080/}
    networks: {default: {aliases: [shop.test]}}
  client:
    image: IMAGE
    entrypoint: [sh, -c]
    command: ["while wget -q -O - http://$$TARGET/; do sleep 0.1; done"]
    environment: {TARGET: "shop.test:8080"}
    depends_on: {web: {condition: service_healthy}}
"""


def test_a_compose_application_answers_over_the_link(image: str, tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www/index.html").write_text("over the link\n")
    (tmp_path / "compose.yaml").write_text(APPLICATION.replace("IMAGE", image))
    words = ["--load", "web", "--duration", "2 s", "--cpus", "0.5", "--memory", "64 MiB", "-o", "app.toml"]
    assert cellbed("import", "compose", "compose.yaml", *words, cwd=tmp_path).returncode == 0
    run("run", tmp_path / "app.toml", "--out", tmp_path / "runs", "--no-limits", status=0)
    folder = only_folder(tmp_path / "runs")
    assert (folder / "raw/client.client-0.client.out").read_text().startswith("over the link\nover the link\n")
    requests = pl.read_parquet(folder / "requests.parquet")
    assert set(requests["status"]) == {"ok"}
    # The least delay of the default mobile link and the edge, there and back.
    assert requests["latency_s"].min() > 0.021
