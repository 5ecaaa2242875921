"""`python -m tests.compose.grafana`: the dashboard against the types that Grafana publishes for its own release.

Needs npm. Every field of the dashboard, of its panels and of what each kind of panel is given has to be one that the
release of docker-compose.yml knows, with a value that it takes; a field that is misspelt on purpose has to be found.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from domain.paths import ROOT

BOARD = ROOT / "deploy/grafana/dashboards/kernel-eval.json"
KINDS = {"timeseries": "TimeSeries", "stat": "Stat", "table": "Table"}
RAW = "./node_modules/@grafana/schema/dist/types/raw"
PRELUDE = [
    f"import type {{ Dashboard, Panel, RowPanel }} from '{RAW}/dashboard/x/dashboard_types.gen';",
    *(
        f"import type * as {name} from '{RAW}/composable/{kind}/panelcfg/x/{name}PanelCfg_types.gen';"
        for kind, name in KINDS.items()
    ),
    # A file has an enumeration's value where the types have its member.
    "type Plain<T> = T extends string ? `${T}` : T extends number | boolean ? T : T extends (infer U)[] ? Plain<U>[]",
    "  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;",
    # What a file leaves out, Grafana has a default for.
    "type Part<T> = T extends object ? { [K in keyof T]?: Part<T[K]> } : T;",
]
PLANTED = {
    '"fillOpacity"': '"fillOpazity"',
    '"lastNotNull"': "3",
    '"displayMode": "list"': '"displayMode": "lizt"',
    '"gridPos"': '"gridPoz"',
    '"schemaVersion"': '"schemaVerzion"',
}
CHECK = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "esnext"]


def release() -> str:
    """Of the image in docker-compose.yml."""
    (found,) = re.findall(r"grafana/grafana:([\d.]+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return str(found)


def typed(board: dict[str, Any]) -> str:
    """A module of TypeScript that has no error where the board has none."""
    lines = [*PRELUDE]

    def one(name: str, kind: str, value: object) -> None:
        lines.append(f"export const {name}: Part<Plain<{kind}>> = {json.dumps(value)};")

    one("board", "Omit<Dashboard, 'panels'>", {name: value for name, value in board.items() if name != "panels"})
    for panel in board["panels"]:
        number, kind = panel["id"], KINDS.get(panel["type"])
        one(f"panel{number}", "Panel" if kind else "RowPanel", panel)
        if kind:
            one(f"options{number}", f"{kind}.Options", panel["options"])
        if kind in ("TimeSeries", "Table"):
            one(f"field{number}", f"{kind}.FieldConfig", panel["fieldConfig"]["defaults"].get("custom", {}))
    return "\n".join(lines) + "\n"


def errors(folder: Path, text: str) -> list[str]:
    (folder / "board.ts").write_text(text, encoding="utf-8")
    told = subprocess.run(
        ["npx", "tsc", *CHECK, "--moduleResolution", "bundler", "board.ts"], cwd=folder, capture_output=True, text=True
    )
    found = [line for line in told.stdout.splitlines() if "error TS" in line]
    assert found or told.returncode == 0, told.stdout + told.stderr
    return found


def main() -> int:
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "package.json").write_text('{"private": true}')
        wanted = [f"@grafana/schema@{release()}", "typescript@5"]
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", *wanted], cwd=folder, check=True, capture_output=True
        )
        text = typed(board)
        found = errors(folder, text)
        misspelt = [errors(folder, text.replace(good, bad)) for good, bad in PLANTED.items()]
    for error in found:
        print(error)
    caught = sum(bool(each) for each in misspelt)
    print(f"Grafana {release()}: {len(board['panels'])} panels, {len(found)} errors")
    print(f"{caught} of {len(PLANTED)} planted errors found")
    return int(bool(found) or caught < len(misspelt))


if __name__ == "__main__":
    sys.exit(main())
