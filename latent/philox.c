/* Philox4x32-10 for many lanes and counters: the same integers as `latent.philox`, compiled.

   It is called through ctypes and needs no header of Python. Counters are taken some at a time, a word of all
   of them after the other, so that compilers turn each round into vector operations. */

#include <stddef.h>
#include <stdint.h>

enum { AT_A_TIME = 128, ROUNDS = 10 };

/* One version for each instruction set, chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif

/* keys: (lanes, 3), the two words of a lane's key and its index. block, place: (counters), the first and the
   last word of each counter; the second is the lane's index, the third the step. words: (lanes, counters, 4). */
VECTORISED
void gts_philox(const int64_t *keys, size_t lanes, const int64_t *block, const int64_t *place,
                size_t counters, uint32_t step, uint32_t *words)
{
    uint32_t c0[AT_A_TIME], c1[AT_A_TIME], c2[AT_A_TIME], c3[AT_A_TIME];
    for (size_t lane = 0; lane < lanes; lane++) {
        const uint32_t index = (uint32_t)keys[3 * lane + 2];
        for (size_t first = 0; first < counters; first += AT_A_TIME) {
            const size_t left = counters - first;
            const size_t count = left < AT_A_TIME ? left : AT_A_TIME;
            uint32_t k0 = (uint32_t)keys[3 * lane], k1 = (uint32_t)keys[3 * lane + 1];
            for (size_t i = 0; i < count; i++) {
                c0[i] = (uint32_t)block[first + i];
                c1[i] = index;
                c2[i] = step;
                c3[i] = (uint32_t)place[first + i];
            }
            for (int round = 0; round < ROUNDS; round++) {
                for (size_t i = 0; i < AT_A_TIME; i++) { /* a constant count; what lies behind is not used */
                    const uint64_t p0 = (uint64_t)c0[i] * 0xD2511F53u;
                    const uint64_t p1 = (uint64_t)c2[i] * 0xCD9E8D57u;
                    c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
                    c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
                    c1[i] = (uint32_t)p1;
                    c3[i] = (uint32_t)p0;
                }
                k0 += 0x9E3779B9u;
                k1 += 0xBB67AE85u;
            }
            uint32_t *out = words + 4 * (lane * counters + first);
            for (size_t i = 0; i < count; i++) {
                out[4 * i] = c0[i];
                out[4 * i + 1] = c1[i];
                out[4 * i + 2] = c2[i];
                out[4 * i + 3] = c3[i];
            }
        }
    }
}
