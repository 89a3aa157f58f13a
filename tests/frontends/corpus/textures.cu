// A texture: what the engine refuses to run.
extern "C" __global__ void sampled(cudaTextureObject_t texture, float *out) { out[threadIdx.x] = tex1Dfetch<float>(texture, threadIdx.x); }
