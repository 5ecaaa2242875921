"""Attempts to get out of the sandbox, or to use up the host: each the body of a function that returns what it got.

A refusal is an OSError, or nothing returned. Names in capitals are facts about the host that
`tests.sandbox.run_attacks_as` puts in front of the source, so that no attack has to guess.
"""

from __future__ import annotations

from dataclasses import dataclass

PREAMBLE = """
import array, ctypes, fcntl, mmap, os, resource, signal, socket, stat, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)

def checked(answer):
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer

def call(number, *arguments):
    return checked(libc.syscall(ctypes.c_long(number), *arguments))

def text(path):
    with open(path, "rb") as file:
        return file.read(1 << 16)

def writable(path, flags=os.O_WRONLY):
    os.close(os.open(path, flags))
    return f"{path} can be written"

def capabilities(status):
    held = [line for line in status.decode().splitlines() if line.startswith(("CapPrm", "CapEff", "CapAmb"))]
    return [line for line in held if int(line.split()[1], 16) & ~4]  # Landlock bounds CAP_DAC_READ_SEARCH.

def lends(path):
    return os.stat(path).st_mode & 0o6000

def stolen(data):
    data = data if isinstance(data, bytes) else repr(data).encode()
    return data[:80] if SECRET.encode() in data else None
"""

EPILOGUE = """
try:
    got = attack()
    print("GOT", got, flush=True) if got else print("HELD: it got nothing", flush=True)
except (OSError, subprocess.SubprocessError, MemoryError) as error:
    print("HELD:", error, flush=True)

def kernel_fn(x):
    return x
"""


@dataclass(frozen=True)
class Attack:
    """`ends` are verdicts that contain it as well as a refusal does; without any it must be refused and go on."""

    name: str
    body: str
    ends: tuple[str, ...] = ()

    @property
    def floods(self) -> bool:
        """Whether it goes for the limits, which takes a second or two."""
        return self.name.startswith("flood: ")

    @property
    def source(self) -> str:
        lines = "\n".join(f"    {line}" for line in self.body.strip().splitlines())
        return f"{PREAMBLE}\ndef attack():\n{lines}\n{EPILOGUE}"


SECRETS = {
    "its own environment": "return stolen('\\n'.join(os.environ.values()))",
    "its own memory and descriptors, inherited": """
return [name for name in os.listdir('/proc/self/fd') if int(name) > 4 and os.path.exists('/proc/self/fd/' + name)]""",
    "the referee's environment": "return text(f'/proc/{REFEREE}/environ')",
    "the zygote's environment": "return text(f'/proc/{ZYGOTE}/environ')",
    "the referee's memory": "return writable(f'/proc/{REFEREE}/mem', os.O_RDWR)",
    "the zygote's memory": "return writable(f'/proc/{ZYGOTE}/mem', os.O_RDWR)",
    "a sibling's memory": "return writable(f'/proc/{SIBLING}/mem', os.O_RDWR)",
    "where the referee's memory lies": "return text(f'/proc/{REFEREE}/maps')",
    "the referee's descriptors": "return [os.readlink(f'/proc/{REFEREE}/fd/{n}') for n in (0, 1, 2, 3, 4)]",
    "the referee's root folder": "return os.listdir(f'/proc/{REFEREE}/root/')",
    "the referee's current folder": "return os.listdir(f'/proc/{REFEREE}/cwd/')",
    "another job's folder": "return os.listdir(OTHER_FOLDER)",
    "another job's file": "return stolen(text(OTHER_FOLDER + '/secret'))",
    "a file in another job's folder": "return writable(OTHER_FOLDER + '/planted', os.O_WRONLY | os.O_CREAT)",
    "the state folder": "return os.listdir(STATE)",
    "the keys of the API": "return stolen(text(STATE + '/secret'))",
    "the state folder, by a way up": "return os.listdir('../..')",
    "the project's repository": """
git = ROOT + '/.git'
return text(git) if os.path.isfile(git) else os.listdir(git)""",
    "the project's other code": "return text(ROOT + '/tasks/evaluation/pipeline.py')",
    "the code that watches over it": "return text(ROOT + '/sandbox/supervisor/session.py')",
    "a listing of the project": "return os.listdir(ROOT)",
    "the users of the machine": "return text('/etc/passwd')",
    "the passwords of the machine": "return text('/etc/shadow')",
    "root's home": "return os.listdir('/root')",
    "the folder for temporary files": "return [name for name in os.listdir('/tmp') if MARK in name]",
    "a file for temporary use": "return stolen(text('/tmp/secret-' + MARK))",
    "the same by the root of its own process": "return stolen(text('/proc/self/root/tmp/secret-' + MARK))",
    "the same by the zygote's root": "return stolen(text(f'/proc/{ZYGOTE}/root/tmp/secret-{MARK}'))",
    "the same beneath what covers it": """
checked(libc.umount2(b'/tmp', 2))
return stolen(text('/tmp/secret-' + MARK))""",
    "shared memory of others": "return stolen(text('/dev/shm/' + SHARED))",
    "shared memory of a sibling": "return stolen(text('/dev/shm/sibling-' + MARK))",
    "shared memory that one before it left": """
with open('/dev/shm/left-' + MARK, 'x') as file:
    file.write(SECRET)
return None""",
    "what one before it left in shared memory": "return stolen(text('/dev/shm/left-' + MARK))",
    "the kernel's log": "return call(103, 3, ctypes.create_string_buffer(4096), 4096)",
}

LINKS = {
    "a symbolic link to a secret": "os.symlink(STATE + '/secret', 'link')\nreturn stolen(text('link'))",
    "a symbolic link to write through": """
os.symlink(STATE, 'way')
return writable('way/planted', os.O_WRONLY | os.O_CREAT)""",
    "a hard link to a secret": "os.link(STATE + '/secret', 'hard')\nreturn stolen(text('hard'))",
    "a hard link to a library": "os.link(os.__file__, 'library')\nreturn 'linked'",
    "a secret moved here": "os.rename(STATE + '/secret', 'taken')\nreturn 'moved'",
    "its folder moved away": "os.rename(os.getcwd(), os.getcwd() + '-moved')\nreturn 'moved'",
    "a handle instead of a name": """
handle = ctypes.create_string_buffer(struct.pack('Ii', 120, 0) + bytes(120))
call(303, -100, (STATE + '/secret').encode(), handle, ctypes.byref(ctypes.c_int()), 0)
return 'a handle'""",
    "a file opened by handle": "return call(304, -100, ctypes.create_string_buffer(128), 0)",
}

WRITING = {
    "our own code": "return writable(ROOT + '/sandbox/supervisor/zygote_client.py')",
    "a library": "import torch\nreturn writable(torch.__file__)",
    "a cache of bytecode": """
import torch
return writable(os.path.dirname(torch.__file__) + '/planted.pyc', os.O_WRONLY | os.O_CREAT)""",
    "a module before all others": "return writable(sys.prefix + '/lib/sitecustomize.py', os.O_WRONLY | os.O_CREAT)",
    "the folder for temporary files": """
writable('/tmp/planted-' + MARK, os.O_WRONLY | os.O_CREAT)
return None""",
    "a file for temporary use": "return writable('/tmp/secret-' + MARK)",
    "a file for temporary use, removed": "os.unlink('/tmp/secret-' + MARK)\nreturn 'removed'",
    "the file modes of others": "os.chmod(STATE + '/secret', 0o777)\nreturn 'changed'",
    "the owner of a file": "os.chown(STATE + '/secret', os.getuid(), -1)\nreturn 'changed'",
    "the attributes of a file": "os.setxattr(STATE + '/secret', 'user.planted', b'1')\nreturn 'changed'",
    "the mode of a file that it reads": "os.fchmod(os.open(TOOL, os.O_RDONLY), 0o777)\nreturn 'changed'",
    "the mode of a folder that it reads": """
os.fchmod(os.open(os.path.dirname(TOOL), os.O_RDONLY), 0o711)
return 'changed'""",
    "the mode of a file, by a descriptor for its place": """
return call(452, os.open(TOOL, os.O_PATH), b'', 0o777, 0x1000) or 'changed'""",
    "the mode of a file, by the link to its descriptor": """
os.chmod(f'/proc/self/fd/{os.open(TOOL, os.O_RDONLY)}', 0o777)
return 'changed'""",
    "the owner of a file that it reads": """
file = os.open(TOOL, os.O_RDONLY)
os.fchown(file, os.fstat(file).st_uid, os.getgid())
return 'changed'""",
    "the attributes of a file that it reads": """
os.setxattr(os.open(TOOL, os.O_RDONLY), 'user.planted', b'1')
return 'changed'""",
    "the attributes of a file that it reads, removed": """
os.removexattr(os.open(TOOL, os.O_RDONLY), 'user.kept')
return 'removed'""",
    "the flags of a file that it reads": """
fcntl.ioctl(os.open(TOOL, os.O_RDONLY), 0x40086602, struct.pack('L', 0x40))
return 'changed'""",
    "the flags of a file that it reads, by the newer request": """
fcntl.ioctl(os.open(TOOL, os.O_RDONLY), 0x401C5820, struct.pack('IIIII8x', 0x80, 0, 0, 0, 0))
return 'changed'""",
    "the flags of a file, by path": """
return call(469, -100, TOOL.encode(), struct.pack('QIIII', 0x80, 0, 0, 0, 0), 24, 0) or 'changed'""",
    "a lease on a file that it reads": """
fcntl.fcntl(os.open(TOOL, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
return 'taken'""",
    "a file, cut": "os.truncate(STATE + '/secret', 0)\nreturn 'cut'",
    "a file, cut while it is opened": "return writable(STATE + '/secret', os.O_RDONLY | os.O_TRUNC)",
    "shared memory of others": "return writable('/dev/shm/' + SHARED)",
    "shared memory of a sibling": "return writable('/dev/shm/sibling-' + MARK)",
    "shared memory, removed": "os.unlink('/dev/shm/' + SHARED)\nreturn 'removed'",
    "a folder in shared memory": "os.mkdir('/dev/shm/folder-' + MARK)\nreturn 'made'",
    "the pattern of core files": "return writable('/proc/sys/kernel/core_pattern')",
    "a key of the kernel": "return writable('/proc/sysrq-trigger')",
    "other processes' names": "return writable(f'/proc/{ZYGOTE}/comm')",
    "a device node": """
os.mknod('disk', stat.S_IFBLK | 0o666, os.makedev(8, 0))
return writable('disk', os.O_RDONLY)""",
    "devices": """
wanted = ['mem', 'kmsg', 'tty', 'ptmx', 'kvm', 'fuse', 'net/tun', 'sda', 'vda', 'loop0', 'loop-control', 'console']
wanted += [name for name in os.listdir('/sys/class/block')]
got = []
for name in wanted:
    try:
        os.close(os.open('/dev/' + name, os.O_RDONLY | os.O_NONBLOCK))
        got.append(name)
    except OSError:
        pass
return got""",
}

LENDING = {
    "made so": "os.close(os.open('own', os.O_CREAT | os.O_WRONLY, 0o4755))\nreturn lends('own')",
    "made so, for its group": "os.close(os.open('own', os.O_CREAT | os.O_WRONLY, 0o2755))\nreturn lends('own')",
    "made so by the oldest call": "os.umask(0)\ncall(85, b'own', 0o4755)\nreturn lends('own')",
    "made so by the older call": "call(2, b'own', os.O_CREAT | os.O_WRONLY, 0o4755)\nreturn lends('own')",
    "made so by the newer call": """
call(437, -100, b'own', struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24)
return lends('own')""",
    "made so without a name": """
return os.fstat(os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)).st_mode & 0o6000""",
    "made so as a node": "os.mknod('own', stat.S_IFREG | 0o4755)\nreturn lends('own')",
    "made so as a node, by the older call": "call(133, b'own', stat.S_IFREG | 0o4755, 0)\nreturn lends('own')",
    "changed": "open('own', 'w').close()\nos.chmod('own', 0o4755)\nreturn lends('own')",
    "changed, for its group": "open('own', 'w').close()\nos.chmod('own', 0o2755)\nreturn lends('own')",
    "changed by its descriptor": """
with open('own', 'w') as file:
    os.fchmod(file.fileno(), 0o4755)
return lends('own')""",
    "changed by a call of its folder": """
open('own', 'w').close()
call(268, -100, b'own', 0o4755)
return lends('own')""",
    "changed by the newest call": """
open('own', 'w').close()
call(452, -100, b'own', 0o4755, 0)
return lends('own')""",
}
"""Programs in its folder that whoever runs them runs as their owner."""

PROCESSES = {
    "ptrace of a sibling": "return checked(libc.ptrace(16, SIBLING, 0, 0)) or 'attached'",
    "ptrace of the zygote": "return checked(libc.ptrace(0x4206, ZYGOTE, 0, 0)) or 'seized'",
    "ptrace of itself": "return checked(libc.ptrace(0, 0, 0, 0)) or 'traced'",
    "reading a sibling's memory": "return call(310, SIBLING, ctypes.create_string_buffer(16), 1, 0, 0, 0) or 'called'",
    "writing the zygote's memory": "return call(311, ZYGOTE, ctypes.create_string_buffer(16), 1, 0, 0, 0) or 'called'",
    "a signal to the referee": "return os.kill(REFEREE, 0) or 'can be sent'",
    "a signal to the zygote": "return os.kill(ZYGOTE, 0) or 'can be sent'",
    "a signal to a sibling": "return os.kill(SIBLING, 0) or 'can be sent'",
    "a signal to the first process": "return os.kill(1, 0) or 'can be sent'",
    "a signal to everybody": "return os.kill(-1, signal.SIGURG)",
    "a signal to the referee's group": "return os.killpg(os.getpgid(REFEREE), 0) or 'can be sent'",
    "a signal by descriptor": "return signal.pidfd_send_signal(os.pidfd_open(REFEREE), 0) or 'can be sent'",
    "a descriptor of the referee": "return call(438, os.pidfd_open(REFEREE), 0, 0)",
    "the priority of the referee": "return os.setpriority(os.PRIO_PROCESS, REFEREE, 19) or 'changed'",
    "the limits of the referee": "return resource.prlimit(REFEREE, resource.RLIMIT_CPU, (9999, 9999)) or 'changed'",
    "the processors of the zygote": "return os.sched_setaffinity(ZYGOTE, {0}) or 'changed'",
    "a comparison of kernel objects": "return call(312, os.getpid(), ZYGOTE, 0, 0, 0) or 'called'",
}

NETWORK = {
    "a connection to the queue": "return socket.create_connection(('127.0.0.1', PORT), 2).recv(64)",
    "a socket for IPv6": "return socket.socket(socket.AF_INET6)",
    "a datagram": "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
    "a raw socket": "return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "a packet socket": "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "a netlink socket": "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "a socket to the hypervisor": "return socket.socket(socket.AF_VSOCK)",
    "the interfaces of the kernel's cryptography": "return socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "an abstract socket of the referee": """
socket.socket(socket.AF_UNIX).connect('\\0' + ABSTRACT)
return 'connected'""",
    "a socket of the referee in its folder": """
socket.socket(socket.AF_UNIX).connect(STATE + '/socket')
return 'connected'""",
    "names of the network": """
return socket.create_connection((socket.gethostbyname('localhost'), PORT), 2)""",
}

PRIVILEGES = {
    "root": """
before = os.getuid()
os.setuid(0)
return os.getuid() != before or capabilities(text('/proc/self/status'))""",
    "capabilities": "return capabilities(text('/proc/self/status'))",
    "capabilities of a program": "return capabilities(subprocess.check_output(['cat', '/proc/self/status']))",
    "another user": "os.setresuid(1, 1, 1)\nreturn 'changed'",
    "other groups": "os.setgroups([0])\nreturn 'changed'",
    "a program that makes root": """
done = subprocess.run(['su', 'root', '-c', 'id'], stdin=subprocess.DEVNULL, capture_output=True, timeout=5)
return b'uid=0' in done.stdout""",
    "all capabilities": """
header, words = struct.pack('Ii', 0x20080522, 0), struct.pack('IIIIII', *[0xFFFFFFFF] * 6)
return call(126, ctypes.c_char_p(header), ctypes.c_char_p(words)) or 'all of them'""",
    "a namespace of users": "return call(272, 0x10000000) or 'entered'",
    "a namespace of mounts": "return call(272, 0x00020000) or 'entered'",
    "the referee's network": "return call(308, os.open(f'/proc/{REFEREE}/ns/net', os.O_RDONLY), 0) or 'entered'",
    "a child in namespaces of its own": """
child = call(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
if not child:
    os._exit(0)
return 'born'""",
    "the same by the newer call": """
return call(435, ctypes.create_string_buffer(struct.pack('Q', 0x10000000) + bytes(80)), 88)""",
    "a mount": "return checked(libc.mount(b'none', os.getcwd().encode(), b'tmpfs', 0, None)) or 'mounted'",
    "another root folder": "os.mkdir('jail')\nos.chroot('jail')\nreturn 'changed'",
    "another layout of memory": "return call(135, 0x0040000) or 'changed'",
    "descendants let go": "return checked(libc.prctl(36, 0, 0, 0, 0)) or 'let go'",
    "a sibling, whom nobody counts or stops": "return call(56, 0x8000 | 17, 0, 0, 0, 0) and 'started' or os._exit(0)",
    "a filter of its own": "return checked(libc.prctl(22, 2, ctypes.create_string_buffer(16), 0, 0)) or 'installed'",
}

CALLS = {
    "io_uring": "return call(425, 8, ctypes.create_string_buffer(256))",
    "asynchronous reads": "return call(206, 8, ctypes.byref(ctypes.c_ulong())) or 'a context'",
    "going on by a parent's end": """
told = ctypes.c_int()
checked(libc.prctl(1, 18, 0, 0, 0))
checked(libc.prctl(2, ctypes.byref(told), 0, 0, 0))
return told.value == 18""",
    "descriptors of a thread's own": "return call(436, 900, 901, 2) or 'its own'",
    "a thread with descriptors of its own": """
libc.mmap.restype = ctypes.c_void_p
stack = libc.mmap(None, 1 << 16, 3, 0x22, -1, 0) + (1 << 15)
return call(56, 0x10000 | 0x800 | 0x100, ctypes.c_void_p(stack), 0, 0, 0) and 'started'""",
    "bpf": "return call(321, 0, ctypes.create_string_buffer(128), 128) or 'called'",
    "perf events": """
return call(298, ctypes.create_string_buffer(struct.pack('II', 1, 128) + bytes(120)), 0, -1, -1, 0)""",
    "page faults handled here": "return call(323, 1)",
    "a key ring": "return call(250, 0, -3, 1, 0, 0)",
    "a key": "return call(248, b'user', b'planted', b'x', 1, -3)",
    "shared memory of System V": "return call(29, 4711, 4096, 0o1666) or 'made'",
    "a message queue": "return call(68, 4711, 0o1666) or 'made'",
    "semaphores of System V": "return call(64, 4711, 1, 0o1666) or 'made'",
    "a segment of another, attached": "return call(30, SEGMENT, 0, 0)",
    "a segment of another, removed": "return call(31, SEGMENT, 0, 0) or 'removed'",
    "what another's segment is like": "return call(31, SEGMENT, 2, ctypes.create_string_buffer(256)) or 'told'",
    "a message to another": "return call(69, QUEUE, struct.pack('l8s', 1, b'planted'), 8, 0o4000) or 'sent'",
    "a message of another": "return call(70, QUEUE, ctypes.create_string_buffer(16), 8, 0, 0o4000) or 'taken'",
    "a queue of another, removed": "return call(71, QUEUE, 0, 0) or 'removed'",
    "a semaphore of another": "return call(65, SEMAPHORE, struct.pack('Hhh', 0, 1, 0o4000), 1) or 'raised'",
    "a semaphore of another, within a time": """
return call(220, SEMAPHORE, struct.pack('Hhh', 0, 1, 0o4000), 1, 0) or 'raised'""",
    "a semaphore of another, removed": "return call(66, SEMAPHORE, 0, 0) or 'removed'",
    "a POSIX message queue, removed": "return call(241, b'planted') or 'removed'",
    "a POSIX message queue": "return call(240, b'planted', os.O_CREAT | os.O_RDWR, 0o666, 0)",
    "another kernel": "return call(246, 0, 0, 0, 0) or 'called'",
    "a kernel module": "return call(175, ctypes.create_string_buffer(64), 64, b'') or 'called'",
    "a restart": "return call(169, 0xFEE1DEAD, 672274793, 0x89ABCDEF, 0) or 'called'",  # CAD_ON: harmless if allowed
    "swap": "return call(167, b'swap', 0) or 'called'",
    "another host name": "socket.sethostname('planted')\nreturn 'changed'",
    "another time": "time.clock_settime(time.CLOCK_REALTIME, time.time())\nreturn 'changed'",
    "the ports of the machine": "return call(172, 3) or 'opened'",
    "marks on files": "return call(300, 0, 0)",
    "accounting": "return call(163, b'account') or 'on'",
    "hidden memory": "return call(447, 0)",
}

DYING = {
    "by its number": "os.kill(os.getpid(), 9)",
    "by its group": "os.kill(0, 9)",
    "by its group's number": "os.killpg(os.getpgid(0), 9)",
    "with everybody": "os.kill(-1, 9)",
    "by its thread": "signal.raise_signal(9)",
    "by its thread alone": "call(200, os.getpid(), 9)",
    "by a queued signal": "call(129, os.getpid(), 9, ctypes.create_string_buffer(128))",
    "by a signal queued for its thread": "call(297, os.getpid(), os.getpid(), 9, ctypes.create_string_buffer(128))",
    "by descriptor": "signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 9)",
    "by a child": """
me, (read_end, write_end) = os.getpid(), os.pipe()
if not os.fork():
    os.setsid()
    for target in (me, -me, -1):
        try:
            os.kill(target, 9)
        except OSError as error:
            os.write(write_end, error.strerror.encode())
    os._exit(0)
os.wait()
os.close(write_end)
assert os.read(read_end, 99).count(b'not permitted') == 3
raise PermissionError('a child may not either')""",
    "by a child's end": "call(56, 9, 0, 0, 0, 0) or os._exit(0)",
    "by what a descriptor signals with": "fcntl.fcntl(os.pipe()[0], fcntl.F_SETSIG, 9)",
    "going on by what a descriptor signals with": "fcntl.fcntl(os.pipe()[0], fcntl.F_SETSIG, 18)",
    "by its time": "resource.prlimit(0, resource.RLIMIT_CPU, (1, 1))",
    "by its time, by the older call": "call(160, 0, struct.pack('QQ', 1, 1))",
    "by its time, from a place that looks like none": """
libc.mmap.restype = ctypes.c_void_p
place = libc.mmap(ctypes.c_void_p(1 << 40), 4096, 3, 0x32, -1, 0)
assert place == 1 << 40
ctypes.memmove(place, struct.pack('QQ', 1, 1), 16)
call(302, 0, 0, ctypes.c_void_p(place), 0)""",
    "by a timer": """
timer, event = ctypes.c_void_p(), ctypes.create_string_buffer(struct.pack('QiiI44x', 0, 9, 0, 0))
call(222, 1, event, ctypes.byref(timer))
call(223, timer, 0, ctypes.create_string_buffer(struct.pack('qqqq', 0, 0, 0, 1)), None)
time.sleep(5)""",
    "by its time at real-time priority": "resource.prlimit(0, resource.RLIMIT_RTTIME, (1, 1))",
}
"""By SIGKILL, so that it would seem to be somebody else's doing. All of them have to be refused."""

FOREIGN = {
    "a call by the table of x32": "return libc.syscall(ctypes.c_long(0x40000000 | 39))",
    "a call by the table of i386": """
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex('b814000000cd80c3'))
return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()""",
}

FLOODS = {
    "processes": """
while True:
    if not os.fork():
        time.sleep(60)""",
    "processes that start processes": """
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)""",
    "threads": """
import threading
while True:
    try:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError as error:
        raise OSError(str(error))""",
    "memory": "held = []\nwhile True:\n    held.append(bytearray(b'x') * (16 << 20))",
    "memory of children": """
for _ in range(8):
    if not os.fork():
        held = bytearray(b'x') * (120 << 20)
        time.sleep(60)
time.sleep(60)""",
    "memory that is shared, with nobody": """
memory = mmap.mmap(-1, 1536 << 20)
for place in range(0, len(memory), 1 << 20):
    memory[place:place + (1 << 20)] = bytes(1 << 20)
time.sleep(60)""",
    "memory that is shared with children": """
for _ in range(8):
    memory = mmap.mmap(-1, 120 << 20)
    if not os.fork():
        memory.write(bytes(120 << 20))
        time.sleep(60)
time.sleep(60)""",
    "memory in files without a name": """
for _ in range(8):
    file = os.memfd_create('large')
    for _ in range(128):
        os.write(file, bytes(1 << 20))
time.sleep(60)""",
    "the same, each mapped and changed": """
for _ in range(4):
    file = os.memfd_create('large')
    for _ in range(80):
        os.write(file, bytes(1 << 20))
    memory = mmap.mmap(file, 80 << 20, flags=mmap.MAP_PRIVATE)
    memory.write(b'x' * (80 << 20))
    globals()[f'memory{file}'] = memory
time.sleep(60)""",
    # These count as far as the disk has lost space, so what others free meanwhile hides them: they go on for a while.
    "files that were removed": """
for number in range(200):
    file = os.open(f'large{number}', os.O_CREAT | os.O_WRONLY)
    os.unlink(f'large{number}')
    for _ in range(32):
        os.write(file, bytes(1 << 20))
    time.sleep(0.05)
time.sleep(60)""",
    "files that were removed, and are mapped": """
libc.mmap.restype = ctypes.c_void_p
for number in range(200):
    file = os.open(f'large{number}', os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(file, 0, 32 << 20)
    assert libc.mmap(None, 4096, 1, 1, file, ctypes.c_long(0)) not in (None, 2**64 - 1)
    os.unlink(f'large{number}')
    os.close(file)
    time.sleep(0.05)
time.sleep(60)""",
    "files that were removed, and are on their way": """
sockets = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
for number in range(200):
    file = os.open(f'large{number}', os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(file, 0, 32 << 20)
    socket.send_fds(sockets[0], [b'x'], [file])
    os.unlink(f'large{number}')
    os.close(file)
    time.sleep(0.05)
time.sleep(60)""",
    "files that never had a name, and are mapped": """
libc.mmap.restype = ctypes.c_void_p
for number in range(200):
    file = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)
    os.posix_fallocate(file, 0, 32 << 20)
    assert libc.mmap(None, 4096, 1, 1, file, ctypes.c_long(0)) not in (None, 2**64 - 1)
    os.close(file)
    time.sleep(0.05)
time.sleep(60)""",
    "while it talks": """
held = []
while True:
    memory = mmap.mmap(-1, 16 << 20)
    memory.write(bytes(16 << 20))
    held.append(memory)
    print('x', flush=True)""",
    "the disk": """
for number in range(1000):
    with open(f'large{number}', 'wb') as file:
        for _ in range(16):
            file.write(bytes(1 << 20))
    time.sleep(0.02)""",
    "a file that is too long": "with open('long', 'wb') as file:\n    file.truncate(10 << 30)\n    return 'made'",
    "files": """
for number in range(10**9):
    os.close(os.open(f'small{number}', os.O_CREAT))
    if number % 100 == 0:
        time.sleep(0.02)""",
    "shared memory": """
for number in range(400):
    with open(f'/dev/shm/large-{MARK}-{number}', 'wb') as file:
        file.write(bytes(16 << 20))
return None""",
    "descriptors": """
opened = []
while len(opened) < 5000:
    opened.append(os.dup(0))
return 'all of them'""",
    "what it prints": "for _ in range(100):\n    os.write(1, b'x' * (1 << 20))\nos.write(1, b'\\nHELD: printed\\n')",
}

LEAVING = {
    "a daemon": """
if not os.fork():
    os.setsid()
    if not os.fork():
        open('pid', 'w').write(str(os.getpid()))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    os._exit(0)
while not os.path.exists('pid'):
    time.sleep(0.01)
return None""",
    "a daemon that does not die with its parent": """
checked(libc.prctl(1, 0, 0, 0, 0))
if not os.fork():
    os.setsid()
    time.sleep(600)
return None""",
    "a tree too deep for most programs": """
for _ in range(3000):
    os.mkdir('d')
    os.chdir('d')
return None""",
    "folders that cannot be entered": """
os.makedirs('closed/inner')
os.close(os.open('closed/inner/file', os.O_CREAT))
for name in ('closed/inner', 'closed'):
    os.fchmod(os.open(name, os.O_RDONLY), 0)
return None""",
    "a pipe in place of a file": "os.mkfifo('kernel.cubin')\nreturn None",
}

SEEN_IN_TIME = {"a tree too deep for most programs": ("out_of_memory",)}
"""What the launcher ends, where it takes long enough for a look at its folder: on a busy machine."""
FLOODED = ("out_of_memory", "crashed", "runtime_error", "compile_error", "timeout")


def attacks() -> list[Attack]:
    """All of them."""
    refused = {
        **{"reading": SECRETS, "links": LINKS, "writing": WRITING, "processes": PROCESSES},
        "lending rights": LENDING,
        **{"network": NETWORK, "privileges": PRIVILEGES, "calls": CALLS, "dying": DYING, "leaving": LEAVING},
    }
    found = [
        Attack(f"{kind}: {name}", body, SEEN_IN_TIME.get(name, ()))
        for kind, group in refused.items()
        for name, body in group.items()
    ]
    found += [Attack(f"foreign: {name}", body, ("crashed",)) for name, body in FOREIGN.items()]
    return found + [Attack(f"flood: {name}", body, FLOODED) for name, body in FLOODS.items()]
