"""Lost devices, missing drivers, forks, signals and the end of the interpreter."""

from __future__ import annotations

import pytest

from tests.device.cuda.processes import ALL_CALLS, run

pytestmark = [pytest.mark.fake, pytest.mark.timeout(240)]


def test_a_lost_device_fails_fast_and_plainly_everywhere(native_path):
    out = run(
        ALL_CALLS
        + """
fake.poison_next_kernel()
graph.replay(live)
error = refusal(ctx.synchronize)
assert type(error) is fg.ContextPoisonedError, error
print(error)
tell_all(
    lambda error: type(error) is fg.ContextPoisonedError and error.code == 700
    and "cuda:0 was lost to an earlier fault, CUDA_ERROR_ILLEGAL_ADDRESS (700)" in str(error))
# What needs no device says what it said.
print(len(graph.nodes), graph.edges, graph.stats.nodes, len(plain.to_dot().splitlines()))
print(graph, ctx, x.shape, bool(ctx.attributes), bool(ctx.capabilities))
# The other device works.
other = fg.DeviceContext("cuda:1")
y = other.create_buffer(4)
create(other, lambda b: b.add_memset(y, 3.0)).replay()
print(y.numpy())
drop_all()
print("end")
""",
        native_path,
    )
    lines = out.splitlines()
    assert lines[0].startswith("cuda:0 is lost: ")
    assert lines[1:] == [
        "2 [(0, 1)] 2 3",
        "<DeviceGraph 2 nodes, cuda:0> <DeviceContext cuda:0> (1024,) True True",
        "[3. 3. 3. 3.]",
        "end",
    ]


@pytest.mark.parametrize("how", ["run", "numpy", "replay", "dropped", "exit"])
def test_a_fault_is_told_by_whoever_waits_first(native_path, how):
    out = run(
        f"""
how = {how!r}
ctx = fg.DeviceContext("cuda")
fill = fill_of(ctx)
x = ctx.create_buffer(N)
graph = fg.DeviceGraph.create(ctx, lambda b: b.add_function(fill, x, 1.0, N, **GRID))
fake.poison_next_kernel()
if how == "run":
    print(type(refusal(graph.run)).__name__)
elif how == "numpy":
    graph.replay()
    print(type(refusal(x.numpy)).__name__)
elif how == "replay":
    graph.replay()
    while not fake.poisoned(): time.sleep(0.001)
    print(type(refusal(graph.replay)).__name__)
elif how == "dropped":
    graph.replay()
    graph.close()
    del graph, x
    gc.collect()
    print(type(refusal(ctx.synchronize)).__name__)
else:
    graph.replay()
    fg.kept = [graph, x, ctx]
    print("ContextPoisonedError")
""",
        native_path,
    )
    assert out == "ContextPoisonedError\n"


@pytest.mark.parametrize("kind", ["freed", "copy", "memset"])
def test_work_on_memory_that_is_gone_loses_the_device(native_path, kind):
    """A raw address whose owner lied."""
    out = run(
        f"""
kind = {kind!r}
ctx = fg.DeviceContext("cuda")
fill = fill_of(ctx)
x = ctx.create_buffer(N)
liar = fg.Pointer(x.ptr, x.nbytes, object(), "float32", "cuda")
if kind == "freed":
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_function(fill, liar, 1.0, N, **GRID))
elif kind == "copy":
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_copy(liar, np.ones(N, "f4")))
else:
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(liar, 1.0))
graph.run()
assert (x.numpy() == 1).all()
del x
gc.collect()
error = refusal(graph.run)
print(type(error).__name__, error.code)
""",
        native_path,
    )
    assert out == "ContextPoisonedError 700\n"


# ---- drivers that are missing or unfit


def test_no_driver():
    out = run(
        """
for device in ("cuda", "cuda:1"):
    error = refusal(fg.DeviceContext, device)
    assert type(error) is fg.UnsupportedError, error
    print(error)
ctx = fg.DeviceContext("cpu")
x = ctx.create_buffer(4)
fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 2.0)).replay()
print(x.numpy())
""",
        preload="",
    )
    first, second, third = out.splitlines()
    assert first == second
    assert first.startswith("no CUDA driver: ")
    assert "driver 580 or newer" in first
    assert third == "[2. 2. 2. 2.]"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("version=12080", "the CUDA driver is too old: it is of CUDA 12.8"),
        ("devices=0", "the CUDA driver sees no device"),
        ("cc=(7, 5)", "has compute capability 7.5; fastgraph needs 8.0 or newer"),
    ],
)
def test_unfit_drivers(what, words):
    out = run(
        f"""
fake.driver({what})
error = refusal(fg.DeviceContext, "cuda")
print(type(error).__name__, error)
import pathlib
exists = pathlib.Path.exists
pathlib.Path.exists = lambda self: str(self) == "/dev/nvidiactl" or exists(self)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("default")
    for _ in range(3):
        assert fg.DeviceContext().device == "cpu"
print(len(told), told[0].category.__name__, told[0].filename)
print(told[0].message)
"""
    )
    lines = out.splitlines()
    assert lines[0].startswith("UnsupportedError ")
    assert words in lines[0]
    assert lines[1] == "1 FastGraphWarning <string>"
    assert words in lines[2]
    assert lines[2].startswith("a GPU is there, but cannot be used (")
    assert lines[2].endswith("using 'cpu'")


def test_without_a_gpu_nothing_is_said():
    out = run(
        """
import pathlib
exists = pathlib.Path.exists
pathlib.Path.exists = lambda self: str(self) != "/dev/nvidiactl" and exists(self)
print(fg.DeviceContext().device)
pathlib.Path.exists = lambda self: str(self) == "/dev/nvidiactl" or exists(self)
print(fg.DeviceContext().device)
"""
    )
    assert out.splitlines() == ["cpu", "cuda:0"]


@pytest.mark.parametrize(
    "name", ["cuInit", "cuDevicePrimaryCtxRetain", "cuStreamCreateWithPriority"]
)
def test_a_start_that_fails_may_work_later(name):
    out = run(
        f"""
fake.fail({name!r}, 999)
error = refusal(fg.DeviceContext, "cuda")
print(type(error).__name__, error.code)
fake.fail({name!r}, 2)
error = refusal(fg.DeviceContext, "cuda") if {name!r} != "cuInit" else None
print(error is None or isinstance(error, MemoryError))
fake.fail({name!r}, 999, 0)
ctx = fg.DeviceContext("cuda")
x = ctx.create_buffer(4)
fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 2.0)).replay()
print(x.numpy())
"""
    )
    assert out.splitlines() == ["DriverError 999", "True", "[2. 2. 2. 2.]"]


# ---- forks


def test_a_forked_child(native_path):
    out = run(
        ALL_CALLS
        + """
warnings.simplefilter("ignore", DeprecationWarning)
plain.replay()  # in flight, or not, when it forks
pid = os.fork()
if not pid:
    tell_all(
        lambda error: type(error) is fg.DriverError and error.code == 3
        and "forked" in str(error) and "'spawn'" in str(error))
    host = fg.DeviceContext("cpu")
    y = host.create_buffer(4)
    create(host, lambda b: b.add_memset(y, 2.0)).replay()
    print("child", y.numpy(), flush=True)
    drop_all()
    sys.exit(0)
print(os.waitpid(pid, 0)[1])
print(plain.run(), (graph.run(live)[0] == 1).all())
""",
        native_path,
    )
    assert out.splitlines() == ["child [2. 2. 2. 2.]", "0", "() True"]


# ---- the end of the interpreter


@pytest.mark.parametrize("kept", [False, True], ids=["dropped", "kept"])
@pytest.mark.parametrize("host", [False, True], ids=["plain", "host"])
def test_the_end_while_replays_are_pending(native_path, kept, host):
    """Held: what is pending never runs, and nobody waits for it."""
    run(
        f"""
ctx = fg.DeviceContext("cuda")
fill = fill_of(ctx)
x = ctx.create_buffer(N)

def build(b, live):
    first = b.add_function(fill, x, b.scalar("v", "float32", 1.0), N, **GRID)
    if {host}:
        b.add_host_function(lambda: print("late"), dependencies=[first])
    b.add_output(x)

graph = fg.DeviceGraph.create(ctx, build, np.ones(4, "f4"))
graph.run(np.ones(4, "f4"))
sys.stdout.flush()
fake.hold(True)
graph.replay(np.ones(4, "f4"), v=2.0)
for _ in range(20):
    graph.replay()
if {kept}:
    fg.kept = [graph, x, ctx, fill]
    fg.kept.append(fg.kept)
"""
        # Without anything that keeps them, they are waited for: nobody would let them go on.
        + ("" if kept else "\nfake.hold(False)\n"),
        native_path,
    )


def test_the_end_inside_a_host_function():
    out = run(
        """
import atexit
ctx = fg.DeviceContext("cuda")
begun, ending = threading.Event(), threading.Event()
def f():
    print("begun", flush=True)
    begun.set()
    ending.wait()
    time.sleep(0.1)  # nobody waits for it in vain
    print("done", flush=True)
graph = fg.DeviceGraph.create(ctx, lambda b: b.add_host_function(f))
for _ in range(3):
    graph.replay()
begun.wait()
atexit.register(ending.set)  # is called before what the graph has registered
fg.kept = [graph]
"""
    )
    assert out.splitlines()[:2] == ["begun", "done"]


def test_the_end_with_an_exception_nobody_took():
    run(
        """
ctx = fg.DeviceContext("cuda")
def f():
    raise KeyError
graph = fg.DeviceGraph.create(ctx, lambda b: b.add_host_function(f))
graph.replay()
while not graph._state.executable.idle: time.sleep(0)
"""
    )


def test_the_end_in_a_thread(native_path):
    """A daemon waits for what never comes."""
    run(
        """
ctx = fg.DeviceContext("cuda")
fill = fill_of(ctx)
x = ctx.create_buffer(N)
graph = fg.DeviceGraph.create(ctx, lambda b: b.add_function(fill, x, 1.0, N, **GRID))
graph.run()
fake.hold(True)
fg.kept = [graph, x, ctx]
threads = [threading.Thread(target=f, daemon=True) for f in (graph.run, x.numpy, ctx.synchronize)]
for thread in threads:
    thread.start()
    fake.wait_for_polls()
""",
        native_path,
    )


# ---- Ctrl-C


@pytest.mark.parametrize(
    "call", ["ctx.synchronize()", "graph.run(live)", "x.numpy()", "x.copy_from(live)",
             "event.synchronize()", "ctx.execution_time(lambda: None)", "del_graph()"],
)  # fmt: skip
def test_ctrl_c_while_waiting(native_path, call):
    out = run(
        f"""
ctx = fg.DeviceContext("cuda")
fill = fill_of(ctx)
x = ctx.create_buffer(N)
event = ctx.create_event()

def build(b, live):
    b.add_function(fill, x, 1.0, N, **GRID)
    b.add_output(x)

live = np.ones(N, "f4")
graph = fg.DeviceGraph.create(ctx, build, live)
graph.run(live)
fake.hold(True)
graph.replay(live)
event.record()

told, held = threading.Event(), True

def interrupt():
    global held
    fake.wait_for_polls()
    os.kill(os.getpid(), signal.SIGINT)
    if {call == "del_graph()"}:
        fake.wait_for_polls()
    else:
        told.wait()
    held = False
    fake.hold(False)

def del_graph():
    "A destructor waits on; Ctrl-C comes out afterwards."
    global graph
    del graph
    while True:
        time.sleep(0.001)

thread = threading.Thread(target=interrupt)
thread.start()
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", held)
told.set()
thread.join()
graph = fg.DeviceGraph.create(ctx, build, live)
for _ in range(3):
    x.copy_from(np.zeros(N, "f4"))
    assert (graph.run(live)[0] == 1).all()
ctx.synchronize()
print(event.query(), (x.numpy() == 1).all())
""",
        native_path,
    )
    assert out.splitlines() == [f"interrupted {call != 'del_graph()'}", "True True"]
