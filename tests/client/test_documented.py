"""The how-to in docs/reference/clients.md works as printed: its Java, and its JavaScript for servers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from live_server import serving, start
from ranktrial.service.api_keys import KeyFile

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "clients.md").read_text(encoding="utf-8")
MAIN = """
public class Main {
    public static void main(String[] arguments) throws Exception {
        var trials = new Trials(arguments[0], arguments[1]);
        var answer = trials.rank("shoes", "{\\"query\\": \\"q\\", \\"a\\": [\\"x\\", \\"y\\"], \\"b\\": [\\"y\\", \\"z\\"]}");
        var id = answer.replaceAll(".*\\"id\\":\\"([^\\"]*)\\".*", "$1");
        var first = answer.replaceAll(".*\\"ranking\\":\\\\[\\"([^\\"]*)\\".*", "$1");
        System.out.println(trials.send("[{\\"id\\": \\"" + id + "\\", \\"document\\": \\"" + first + "\\"}]", 3).get());
        System.out.println(trials.rank("none", "{}"));
        System.out.println(new Trials("http://127.0.0.1:9", "").rank("shoes", "{}"));
        System.out.println(new Trials("http://127.0.0.1:9", "").send("[]", 2).get());
    }
}
"""


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    return str(found)


def run(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300).stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on this machine")
def test_java(tmp_path: Path) -> None:
    java = str(shutil.which("java"))
    if "jdk.compiler" not in run([java, "--list-modules"], tmp_path):
        pytest.skip("java on this machine has no compiler")
    patient = re.sub(r"\b500\)", "60_000)", block("java"))  # tests must not depend on how busy the machine is
    imports, _, code = patient.rpartition("import ")
    line, _, code = code.partition("\n")
    (tmp_path / "Main.java").write_text(f"{imports}import {line}\n{MAIN}{code}")
    keys = KeyFile(tmp_path / "keys")
    key = keys.add("shop", ["serve", "ingest", "admin", "read"])
    with serving(tmp_path / "t.db", keys=keys) as service:
        service.headers["Authorization"] = f"Bearer {key}"
        start(service, "shoes")
        said = run([java, "-Xshare:auto", "Main.java", str(service.base_url).rstrip("/"), key], tmp_path)
        assert said.split() == ["true", "null", "null", "false"]
        assert service.get("/v1/trials/shoes/report").json()["clicks"] == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
def test_javascript_on_the_server(tmp_path: Path) -> None:
    shutil.copy(ROOT / "clients" / "js" / "ranktrial.js", tmp_path)
    with serving(tmp_path / "t.db") as service:
        start(service, "shoes")
        code = block("js").replace("http://127.0.0.1:8000", str(service.base_url).rstrip("/"))
        code += "\nconsole.log(shown.fallback, shown.ranking.length > 1, client.counts.lost);"
        (tmp_path / "shop.mjs").write_text(code.replace("{ key:", "{ timeout: 60_000, key:"))
        assert run(["node", "shop.mjs"], tmp_path).split() == ["null", "true", "0"]


def test_the_size_that_the_page_tells_is_below_the_bound() -> None:
    measured = (ROOT / "docs" / "research" / "service.md").read_text(encoding="utf-8")
    (size,) = re.findall(r"([\d,]+) bytes minified", measured)
    assert int(size.replace(",", "")) < 3_000
    assert "below 3 KB minified" in PAGE
