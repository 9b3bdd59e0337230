// Attention of float32 on tensor cores, from compute capability 8.0 on, as `attention_tensor.cu` has it for 16-bit types.
//
// A float is taken as two numbers of TF32 and a product as three of theirs, so that it is as exact as float32 but for the last bits;
// probabilities are not rounded in between.
#include "attention_tensor.cuh"

// Up to 64 and up to 128 columns of a head. Warps, pieces and tile are what registers and shared memory have room for, of three blocks on a
// processor with 228 KiB, or two; more than 48 KiB of a block the launch gives it. The host knows the numbers of warps, rows and bytes.
#define INSTANCES(RUN)                                                                                                     \
    BUSY_BLOCK_KERNEL(attention_tensor_float_64, AttentionArgs, 128, 3, RUN(attention, float, 64, 4, 1, 32, false))       \
    BUSY_BLOCK_KERNEL(attention_tensor_float_128, AttentionArgs, 128, 3, RUN(attention, float, 128, 4, 1, 32, false))     \
    BUSY_BLOCK_KERNEL(attention_dq_tensor_float_64, AttentionArgs, 128, 2, RUN(attention_dq, float, 64, 4, 1, 32, true))   \
    BUSY_BLOCK_KERNEL(attention_dq_tensor_float_128, AttentionArgs, 128, 2, RUN(attention_dq, float, 128, 4, 1, 16, true)) \
    BUSY_BLOCK_KERNEL(attention_dkv_tensor_float_64, AttentionArgs, 128, 2, RUN(attention_dkv, float, 64, 4, 1, 32, true)) \
    BUSY_BLOCK_KERNEL(attention_dkv_tensor_float_128, AttentionArgs, 128, 2, RUN(attention_dkv, float, 128, 4, 1, 16, true))
#ifdef ALL_TENSOR_TYPES
static_assert(sizeof(ForwardRoom<Shape<float, 128, 4, 1, 32, false>>) == 67584, "as the host gives it");
static_assert(sizeof(BackwardRoom<Shape<float, 64, 4, 1, 32, true>>) == 52480, "as the host gives it");
static_assert(sizeof(BackwardRoom<Shape<float, 128, 4, 1, 16, true>>) == 84608, "as the host gives it");
INSTANCES(RUN_ON_TENSORS)
#else
INSTANCES(NOTHING)
#endif
