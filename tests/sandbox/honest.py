"""What is no attack, and has to go on in every mode: each the body of a function that returns what it is done with."""

from __future__ import annotations

from tests.sandbox.attacks import Attack

HONEST = {
    "libraries and threads": """
import concurrent.futures, torch, torch.multiprocessing, triton, triton.language
torch.set_num_threads(2)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    return sum(pool.map(lambda size: float(torch.ones(size, size).mm(torch.ones(size, size)).sum()), (64, 512)))""",
    "files and programs of its own": """
with open('mine', 'w') as file:
    file.write('kept')
os.mkdir('folder')
return subprocess.check_output(['cat', 'mine'])""",
}


def honest() -> list[Attack]:
    """All of them."""
    return [Attack(name, body) for name, body in HONEST.items()]
