"""Kernels are told apart by their names, as cuBLAS, cuDNN, ATen, Triton and NCCL give them."""

from __future__ import annotations

import pytest

from hotloop.logs.trace.causes import family, is_plain_float32, on_tensor_cores, short_name

ATEN = "void at::native::"
NAMES = {
    "ampere_sgemm_128x64_tn": ("gemm", "float32"),
    "volta_sgemm_32x128_nn": ("gemm", "float32"),
    "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn": ("gemm", "tensor"),
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>(Params)": ("gemm", "tensor"),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1": ("gemm", "tensor"),
    "nvjet_tst_128x152_64x5_2x1_v_bz_TNN": ("gemm", "tensor"),
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SE_K1": ("gemm", ""),
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw": ("conv", "tensor"),
    "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1": ("conv", "float32"),
    "void wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int)": ("conv", ""),
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(Params)": ("attention", "tensor"),
    "fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)": ("attention", "tensor"),
    f"{ATEN}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)": ("other", ""),
    f"{ATEN}elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda(int)>(int)": ("other", ""),
    "triton_poi_fused_add_relu_3": ("other", ""),
    "triton_red_fused_native_layer_norm_7": ("other", ""),
    f"{ATEN}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(int)": (
        "other",
        "",
    ),
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(int)": ("other", ""),
    f"{ATEN}(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>>(int)": ("other", ""),
    f"{ATEN}(anonymous namespace)::cunn_SoftMaxForward<8, float, float>(float*)": ("other", ""),
    f"{ATEN}indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)": ("other", ""),
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("collective", ""),
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)": ("collective", ""),
    "Memcpy HtoD (Pinned -> Device)": ("memcpy", ""),
    "Memset (Device)": ("memset", ""),
    "my_own_op": ("other", ""),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_kernel_is_for_and_runs_on(name: str) -> None:
    cores = "tensor" if on_tensor_cores(name) else "float32" if is_plain_float32(name) else ""
    assert (family(name), cores) == NAMES[name]


def test_short_names_are_without_namespaces() -> None:
    names = list(NAMES)
    assert short_name(names[0]) == "ampere_sgemm_128x64_tn"
    assert short_name(names[3]) == "Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn…"
    assert short_name(names[12]) == "vectorized_elementwise_kernel<4, CUDAFunctor_add<fl…"
    assert short_name("Memcpy HtoD (Pinned -> Device)") == "Memcpy HtoD (Pinned -> Device)"
    assert all(len(short_name(name)) <= 52 for name in NAMES)
