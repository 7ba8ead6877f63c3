"""Install or remove units: ``python3 heal.py install|remove FOLDER``. systemd knows of them from the next boot on."""

import sys
from pathlib import Path

action, folder = sys.argv[1], Path(sys.argv[2])
wanted = folder / "kubelet.service.wants"
for packed in Path(__file__).parent.glob("*.service"):
    unit, link = folder / packed.name, wanted / packed.name
    link.unlink(missing_ok=True)
    if action == "install":
        fresh = unit.with_suffix(".new")
        fresh.write_text(packed.read_text(encoding="utf-8"), encoding="utf-8")
        fresh.replace(unit)
        wanted.mkdir(exist_ok=True)
        link.symlink_to(f"../{unit.name}")
    else:
        unit.unlink(missing_ok=True)
