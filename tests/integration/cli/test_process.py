"""The command line as a process of its own: what it imports, and that it starts."""

import subprocess
import sys


def test_help_imports_neither_torch_nor_a_client() -> None:
    program = (
        "import sys\n"
        "from drivetrain.cli.main import main\n"
        "sys.argv = ['drivetrain', '--help']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'httpx', 'aiokafka', 'rich', 'yaml', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_the_package_runs_as_a_module() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "drivetrain.cli", "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split()[0] == "drivetrain"
