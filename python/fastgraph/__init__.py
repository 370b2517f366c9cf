"""fastgraph: record a graph of work once, replay it at the speed of the driver.

Two layers on one substrate: device graphs (explicit nodes on stable addresses) and compiled graphs
(a tensor program, built here or read from ONNX, lowered onto a device graph).
"""

from fastgraph import interop, ir, onnx
from fastgraph._core.buffer import Buffer
from fastgraph._core.key import Key
from fastgraph._core.keys import KeyWriter
from fastgraph._core.raw import RawOutput
from fastgraph._core.step import Step
from fastgraph.device.builder import DeviceGraphBuilder
from fastgraph.device.cache import DeviceGraphCache
from fastgraph.device.context import DeviceContext
from fastgraph.device.function import NativeKernel
from fastgraph.device.graph import DeviceGraph
from fastgraph.device.inputs import DeviceGraphInput, HostValue, InPlace
from fastgraph.device.kernel import In, InOut, Kernel, Out
from fastgraph.device.pending import Node
from fastgraph.device.pointer import Pointer
from fastgraph.errors import (
    CompileError,
    ContextPoisonedError,
    DriverError,
    FastGraphError,
    FastGraphWarning,
    GraphError,
    HazardError,
    InputError,
    OutOfMemoryError,
    ScopeError,
    StaleAddressError,
    StaleOutputError,
    UnsupportedError,
)
from fastgraph.ir import Graph, Value, ops
from fastgraph.ir.dims import dim
from fastgraph.onnx.compiled import load
from fastgraph.runtime.buckets import BucketedCompileCache, power_of_two_ladder
from fastgraph.runtime.compile_cache import CompileCache
from fastgraph.runtime.compiled import CompiledGraph
from fastgraph.runtime.expert_pool import ExpertPool, PoolChange
from fastgraph.runtime.routing import ResidencyStats
from fastgraph.runtime.session import CompileOptions, Session

__version__ = "0.1.0"

__all__ = [
    "BucketedCompileCache",
    "Buffer",
    "CompileCache",
    "CompileError",
    "CompileOptions",
    "CompiledGraph",
    "ContextPoisonedError",
    "DeviceContext",
    "DeviceGraph",
    "DeviceGraphBuilder",
    "DeviceGraphCache",
    "DeviceGraphInput",
    "DriverError",
    "ExpertPool",
    "FastGraphError",
    "FastGraphWarning",
    "Graph",
    "GraphError",
    "HazardError",
    "HostValue",
    "In",
    "InOut",
    "InPlace",
    "InputError",
    "Kernel",
    "Key",
    "KeyWriter",
    "NativeKernel",
    "Node",
    "Out",
    "OutOfMemoryError",
    "Pointer",
    "PoolChange",
    "RawOutput",
    "ResidencyStats",
    "ScopeError",
    "Session",
    "StaleAddressError",
    "StaleOutputError",
    "Step",
    "UnsupportedError",
    "Value",
    "dim",
    "interop",
    "ir",
    "load",
    "onnx",
    "ops",
    "power_of_two_ladder",
]
