"""Runs the notebooks from top to bottom in a fresh kernel each, and saves what they print and draw.

python notebooks/execute.py [NOTEBOOK ...]
"""

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
_TIMEOUT_S = 300


def notebooks() -> list[Path]:
    """All notebooks, in order."""
    return sorted(FOLDER.glob("[0-9]*.ipynb"))


def _without_compiling(output: Any) -> Any:
    """An output of a cell without what the first run on a machine says; ``text`` is empty when that was all."""
    if output["output_type"] == "stream":
        lines = output["text"].splitlines(keepends=True)
        output["text"] = "".join(line for line in lines if not line.startswith("kvfrag: compiling"))
    return output


def executed(path: Path) -> Any:
    """The notebook with the outputs of a run of its own; raises nbclient's CellExecutionError if a cell fails."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    # What depends on the machine stays out of the file: when cells ran, the kernel's version, bars of slow runs, a GPU.
    os.environ |= {"TQDM_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
    client = NotebookClient(
        notebook,
        timeout=_TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # how many messages a print becomes is up to the clock
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()
    for cell in notebook.cells:
        if cell["cell_type"] != "code":
            continue
        cell["outputs"] = [one for one in map(_without_compiling, cell.get("outputs", [])) if one.get("text") != ""]
    notebook.metadata = nbformat.from_dict(  # type: ignore[no-untyped-call]
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    return notebook


def main(paths: list[Path]) -> None:
    for path in paths or notebooks():
        print(f"{path.name} ...", file=sys.stderr)
        nbformat.write(executed(path), path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
