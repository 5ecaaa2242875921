"""What is no attack, and has to go on in every mode: each the body of a function that returns what it is done with."""

from __future__ import annotations

from tests.sandbox.attacks import Attack


def together(memory: str) -> str:
    """Seven processes have it before their eyes, for as long as it takes to be counted some times."""
    return f"""
def filled(file, size):
    for _ in range(size):
        os.write(file, bytes(1 << 20))
    return file

memory = {memory}
for place in range(0, len(memory), 4096):
    memory[place] = 1
children = []
for _ in range(6):
    child = os.fork()
    if not child:
        seen = sum(memory[::4096])
        time.sleep(0.5)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
return len(children)"""


HONEST = {
    "libraries and threads": """
import concurrent.futures, torch, torch.multiprocessing, triton, triton.language
torch.set_num_threads(2)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    return sum(pool.map(lambda size: float(torch.ones(size, size).mm(torch.ones(size, size)).sum()), (64, 512)))""",
    "what torch asks for in a process that it starts": """
import torch.multiprocessing
torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGINT)
return 'done'""",
    "a tensor": "import torch\nheld = torch.ones(50 << 20)\ntime.sleep(0.5)\nreturn float(held[-1])",
    "memory that it shares with its children": together("mmap.mmap(-1, 100 << 20)"),
    "memory that its children have from it": together("bytearray(100 << 20)"),
    "a file without a name, mapped": together("mmap.mmap(filled(os.memfd_create('mine'), 200), 200 << 20)"),
    "files and programs of its own": """
with open('mine', 'w') as file:
    file.write('kept')
os.mkdir('folder')
return subprocess.check_output(['cat', 'mine'])""",
}


def honest() -> list[Attack]:
    """All of them."""
    return [Attack(name, body) for name, body in HONEST.items()]
