// Attention on tensor cores, for 16-bit types: forward, and the gradients of queries, keys and values.
//
// As in FlashAttention-2 (Dao, 2023): a warp has M·16 rows of one side and goes over tiles of the other, which the block has in
// shared memory. A warp's scores lie in its registers as a product leaves them, which is also how the next product takes them.
// Probabilities and their gradients are rounded to the type in between. Every sum has one owner: nothing is added atomically.
#include "attention_tensor.cuh"

// Up to 64 and up to 128 columns of a head. Warps, pieces and tile are what registers and 48 KiB of shared memory have room for; the
// host knows the number of warps and rows.
#define INSTANCES(T, tag, RUN)                                                                                             \
    BLOCK_KERNEL(attention_tensor_##tag##_64, AttentionArgs, 128, RUN(attention, T, 64, 4, 2, 64, false))                  \
    BLOCK_KERNEL(attention_tensor_##tag##_128, AttentionArgs, 128, RUN(attention, T, 128, 4, 1, 64, false))                \
    BLOCK_KERNEL(attention_dq_tensor_##tag##_64, AttentionArgs, 128, RUN(attention_dq, T, 64, 4, 1, 32, false))            \
    BLOCK_KERNEL(attention_dq_tensor_##tag##_128, AttentionArgs, 64, RUN(attention_dq, T, 128, 2, 1, 32, true))            \
    BLOCK_KERNEL(attention_dkv_tensor_##tag##_64, AttentionArgs, 128, RUN(attention_dkv, T, 64, 4, 1, 32, false))          \
    BLOCK_KERNEL(attention_dkv_tensor_##tag##_128, AttentionArgs, 64, RUN(attention_dkv, T, 128, 2, 1, 16, false))
INSTANCES(f16, f16, RUN_ON_TENSORS)
#ifdef ALL_TENSOR_TYPES
INSTANCES(bf16, bf16, RUN_ON_TENSORS)
#else
INSTANCES(bf16, bf16, NOTHING)
#endif
