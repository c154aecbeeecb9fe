/* Products of int8 weights and rows that are rounded to int8, with int32 sums: what `latent.int8` computes with
   torch, for CPUs with AVX512-VNNI. torch packs the weights anew in every call, which takes longer than the product
   of 16 rows; here they are packed once.

   It is called through ctypes and needs no header of Python. The bits are those of the torch version: sums of whole
   numbers are exact, and every operation on floats is rounded by itself (-ffp-contract=off). */

#include <stddef.h>
#include <stdint.h>

enum { COLUMNS = 16, DEPTH = 4, ROWS = 16, ROTATED = 32 };

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

/* Whether this CPU can run the functions below. */
int gts_int8_is_supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

/* Packs weights (n, k) for `gts_int8_linear`: panels of 16 output channels, in each the 4 numbers of a channel that
   are multiplied together, plus 128 to be unsigned. Channels beyond n are 0. packed: (ceil(n / 16), k / 4, 16, 4). */
void gts_int8_pack(const int8_t *weights, size_t n, size_t k, uint8_t *packed)
{
    for (size_t panel = 0; panel * COLUMNS < n; panel++)
        for (size_t depth = 0; depth < k / DEPTH; depth++)
            for (size_t column = 0; column < COLUMNS; column++)
                for (size_t part = 0; part < DEPTH; part++) {
                    const size_t channel = panel * COLUMNS + column;
                    const int number = channel < n ? weights[channel * k + depth * DEPTH + part] : 0;
                    *packed++ = (uint8_t)(number + 128);
                }
}

/* Largest absolute value of a row, at least `smallest`; not a number if one of the values is none. */
VNNI static float largest_of(const float *row, size_t k, float smallest)
{
    const __m512 zero = _mm512_setzero_ps();
    __m512 largest = _mm512_set1_ps(smallest), poison = zero;
    for (size_t i = 0; i < k; i += COLUMNS) {
        const __m512 values = _mm512_loadu_ps(row + i);
        largest = _mm512_max_ps(largest, _mm512_abs_ps(values));
        poison = _mm512_add_ps(poison, _mm512_mul_ps(values, zero)); /* infinity · 0 is not a number either */
    }
    return _mm512_reduce_max_ps(largest) + _mm512_reduce_add_ps(poison);
}

/* Adds to every number the one whose place differs in bit `half`, or subtracts it from that. */
VNNI static __m512 butterfly(__m512 numbers, int half)
{
    const __m512i place = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i bit = _mm512_set1_epi32(half);
    const __m512 other = _mm512_permutexvar_ps(_mm512_xor_si512(place, bit), numbers);
    const __mmask16 is_second = _mm512_test_epi32_mask(place, bit);
    const __m512 own = _mm512_mask_sub_ps(numbers, is_second, _mm512_setzero_ps(), numbers);
    return _mm512_add_ps(other, own);
}

/* Multiplies 32 whole numbers by the Hadamard matrix; all sums are exact. */
VNNI static void rotate(__m512 *low, __m512 *high)
{
    const __m512 sum = _mm512_add_ps(*low, *high), difference = _mm512_sub_ps(*low, *high);
    *low = butterfly(butterfly(butterfly(butterfly(sum, 8), 4), 2), 1);
    *high = butterfly(butterfly(butterfly(butterfly(difference, 8), 4), 2), 1);
}

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* Rotates rows (rows, k) and rounds them to ±levels: numbers (rows, k), their sums and scales (rows). They are
   rounded to ±fine_levels before. k is a multiple of 32; `fine` holds k floats; shrink is 32^-0.5. */
VNNI void gts_int8_quantise(const float *values, size_t rows, size_t k, float smallest, float fine_levels,
                            float levels, float shrink, float *fine, int8_t *numbers, int32_t *sums, float *scales)
{
    for (size_t row = 0; row < rows; row++, values += k, numbers += k) {
        const float largest = largest_of(values, k, smallest);
        const __m512 fine_steps = _mm512_set1_ps(1.0f / largest * fine_levels);
        for (size_t i = 0; i < k; i += ROTATED) {
            __m512 low = _mm512_mul_ps(_mm512_loadu_ps(values + i), fine_steps);
            __m512 high = _mm512_mul_ps(_mm512_loadu_ps(values + i + COLUMNS), fine_steps);
            low = _mm512_roundscale_ps(low, NEAREST);
            high = _mm512_roundscale_ps(high, NEAREST);
            rotate(&low, &high);
            _mm512_storeu_ps(fine + i, low);
            _mm512_storeu_ps(fine + i + COLUMNS, high);
        }
        const float rotated = largest_of(fine, k, smallest);
        const __m512 steps = _mm512_set1_ps(1.0f / rotated * levels);
        __m512i sum = _mm512_setzero_si512();
        for (size_t i = 0; i < k; i += COLUMNS) {
            const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(fine + i), steps);
            const __m512i rounded = _mm512_cvt_roundps_epi32(scaled, NEAREST);
            _mm_storeu_si128((__m128i *)(numbers + i), _mm512_cvtepi32_epi8(rounded));
            sum = _mm512_add_epi32(sum, rounded);
        }
        sums[row] = _mm512_reduce_add_epi32(sum);
        scales[row] = rotated / levels * (largest / fine_levels) * shrink;
    }
}

/* One panel of 16 channels times COUNT rows. `ahead` is what will be read next: fetched meanwhile, since with few
   rows memory would be slower than the products. */
#define PRODUCT(COUNT)                                                                                                \
    VNNI static void product_##COUNT(const int8_t *numbers, const int32_t *sums, const float *scales, size_t k,        \
                                     const uint8_t *panel, const uint8_t *ahead, __m512 channel_scale, __m512 bias,    \
                                     __mmask16 mask, float *out, size_t width)                                        \
    {                                                                                                                 \
        __m512i total[COUNT];                                                                                         \
        for (size_t row = 0; row < COUNT; row++)                                                                      \
            total[row] = _mm512_setzero_si512();                                                                      \
        for (size_t depth = 0; depth < k / DEPTH; depth++) {                                                          \
            const __m512i weights = _mm512_loadu_si512(panel + depth * COLUMNS * DEPTH);                              \
            _mm_prefetch((const char *)ahead + depth * COLUMNS * DEPTH, _MM_HINT_T1);                                 \
            for (size_t row = 0; row < COUNT; row++) {                                                                \
                const int32_t four = *(const int32_t *)(numbers + row * k + depth * DEPTH);                           \
                total[row] = _mm512_dpbusd_epi32(total[row], weights, _mm512_set1_epi32(four));                       \
            }                                                                                                         \
        }                                                                                                             \
        for (size_t row = 0; row < COUNT; row++) {                                                                    \
            const __m512i exact = _mm512_sub_epi32(total[row], _mm512_set1_epi32(128 * sums[row]));                   \
            const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(exact), channel_scale);                            \
            const __m512 result = _mm512_mul_ps(scaled, _mm512_set1_ps(scales[row]));                                 \
            _mm512_mask_storeu_ps(out + row * width, mask, _mm512_add_ps(result, bias));                              \
        }                                                                                                             \
    }

PRODUCT(16)
PRODUCT(1)

/* Numbers (rows, k) times packed weights, with scales of the rows and of the n channels, and a bias (n) or NULL:
   n columns of out, whose rows have `width` floats. */
VNNI void gts_int8_linear(const int8_t *numbers, const int32_t *sums, const float *scales, size_t rows, size_t k,
                          const uint8_t *packed, const float *channel_scales, const float *bias, size_t n, float *out,
                          size_t width)
{
    for (size_t first = 0; first < n; first += COLUMNS, packed += COLUMNS * k) {
        const size_t left = n - first;
        const __mmask16 mask = left < COLUMNS ? (__mmask16)((1u << left) - 1) : (__mmask16)0xFFFF;
        const __m512 channel_scale = _mm512_maskz_loadu_ps(mask, channel_scales + first);
        /* −0: added to any result, it changes no bit of it. */
        const __m512 added = bias ? _mm512_maskz_loadu_ps(mask, bias + first) : _mm512_set1_ps(-0.0f);
        const uint8_t *const ahead = left > COLUMNS ? packed + COLUMNS * k : packed;
        size_t row = 0;
        for (; row + ROWS <= rows; row += ROWS)
            product_16(numbers + row * k, sums + row, scales + row, k, packed, ahead, channel_scale, added, mask,
                       out + row * width + first, width);
        for (; row < rows; row++)
            product_1(numbers + row * k, sums + row, scales + row, k, packed, ahead, channel_scale, added, mask,
                      out + row * width + first, width);
    }
}

#else
int gts_int8_is_supported(void) { return 0; }
#endif
