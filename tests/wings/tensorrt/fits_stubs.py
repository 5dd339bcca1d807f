"""Nothing runs here: a type checker that has TensorRT 10's stubs shows that its classes fit the Protocols."""

import tensorrt as trt

from edgescope.wings.tensorrt import api_types as types


def builder(real: trt.Builder) -> types.Builder:
    return real


def weak_builder(real: trt.Builder) -> types.WeakBuilder:
    return real


def network(real: trt.INetworkDefinition) -> types.Network:
    return real


def tensor(real: trt.ITensor) -> types.Tensor:
    return real


def error(real: trt.ParserError) -> types.ParserError:
    return real


def profile(real: trt.IOptimizationProfile) -> types.Profile:
    return real


def config(real: trt.IBuilderConfig) -> types.Config:
    return real


def engine(real: trt.ICudaEngine) -> types.Engine:
    return real


def context(real: trt.IExecutionContext) -> types.Context:
    return real
