// Control flow: dense switches, nested loops that leave early, goto.
extern "C" __global__ void machine(const unsigned char *code, int *out, int length) {
    int stack[16], top = 0, steps = 0;
    const unsigned char *mine = code + threadIdx.x * length;
    for (int at = 0; at < length; at++, steps++) {
        switch (mine[at]) {
            case 0: stack[top++] = at; break;
            case 1: stack[top++] = 7; break;
            case 2: if (top > 1) { stack[top - 2] += stack[top - 1]; top--; } break;
            case 3: if (top > 1) { stack[top - 2] *= stack[top - 1]; top--; } break;
            case 4: if (top > 0) stack[top - 1] = -stack[top - 1]; break;
            case 5: if (top > 0) { stack[top] = stack[top - 1]; top++; } break;
            case 6: if (top > 1) { int t = stack[top - 1]; stack[top - 1] = stack[top - 2]; stack[top - 2] = t; } break;
            case 7: if (top > 0 && stack[top - 1] & 1) at++; break;
            case 8: goto done;
            default: top = 0;
        }
        if (top > 12) top = 1;
    }
done:
    int sum = steps;
    for (int i = 0; i < top; i++) sum = sum * 31 + stack[i];
    out[threadIdx.x] = sum;
}

extern "C" __global__ void collatz(int *out, int limit) {
    int longest = 0;
    for (int start = threadIdx.x + 1; start < limit; start += blockDim.x) {
        unsigned value = start;
        int steps = 0;
        while (value != 1) {
            value = value & 1 ? 3 * value + 1 : value / 2;
            if (++steps > 300) goto next;
        }
        if (steps > longest) longest = steps;
    next:;
    }
    out[threadIdx.x] = longest;
}
