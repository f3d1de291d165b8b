// SPDX-License-Identifier: Apache-2.0
// Errors by band of magnitude, each array read once. See native.py; the same in numpy, pass by pass, is in yardstick.py.

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

constexpr int64_t kBlock = 1024;  // 8 KiB of squares stay in the first cache
constexpr int kBands = 12;

inline uint64_t size_bits(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffffffffffffULL;  // of a magnitude: ordered like it, infinities and NaN above all numbers
}

inline double from_bits(uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class Error>
void measure(Error error, const uint8_t* bands, int64_t count, double* sums, double* peak, int64_t* place) {
    double squares[kBlock];
    double totals[4][16] = {};  // four, so that an addition need not wait for the one before it
    uint64_t top = 0;
    *place = 0;
    for (int64_t start = 0; start < count; start += kBlock) {
        const int64_t size = std::min(kBlock, count - start);
        uint64_t largest = 0;
        for (int64_t i = 0; i < size; ++i) {
            const double value = error(start + i);
            squares[i] = value * value;
            largest = std::max(largest, size_bits(value));
        }
        if (largest > top) {
            top = largest;
            *place = start;
        }
        if (bands == nullptr) {
            double total = 0.0;
#pragma omp simd reduction(+ : total)
            for (int64_t i = 0; i < size; ++i) total += squares[i];
            totals[0][0] += total;
            continue;
        }
        const uint8_t* band = bands + start;
        int64_t i = 0;
        for (; i + 4 <= size; i += 4)
            for (int lane = 0; lane < 4; ++lane) totals[lane][band[i + lane]] += squares[i + lane];
        for (; i < size; ++i) totals[0][band[i]] += squares[i];
    }
    for (int b = 0; b < kBands; ++b) sums[b] = (totals[0][b] + totals[1][b]) + (totals[2][b] + totals[3][b]);
    *peak = from_bits(top);
}

}  // namespace

extern "C" {

// Largest magnitude; NaN or infinite where an element is.
double kw_peak(const double* values, int64_t count) {
    uint64_t top = 0;
    for (int64_t i = 0; i < count; ++i) top = std::max(top, size_bits(values[i]));
    return from_bits(top);
}

// The band of each of some finite elements, floor(log16(top / size)) and at most the last, and how many each has.
void kw_sort(const double* values, int64_t count, double top, uint8_t* bands, int64_t* counts) {
    int64_t found[4][16] = {};
    for (int64_t start = 0; start < count; start += kBlock) {
        const int64_t size = std::min(kBlock, count - start);
        uint8_t* band = bands + start;
        for (int64_t i = 0; i < size; ++i) {
            const uint64_t exponent = size_bits(top / values[start + i]) >> 52;
            band[i] = static_cast<uint8_t>(std::min<uint64_t>(((exponent + 1) >> 2) - 256, kBands - 1));
        }
        int64_t i = 0;
        for (; i + 4 <= size; i += 4)
            for (int lane = 0; lane < 4; ++lane) ++found[lane][band[i + lane]];
        for (; i < size; ++i) ++found[0][band[i]];
    }
    for (int b = 0; b < kBands; ++b) counts[b] = found[0][b] + found[1][b] + found[2][b] + found[3][b];
}

// Squares of answer - exact summed up by band, the largest magnitude of it, and the block that holds that.
// kind: 0 none (exact itself), 1 float32, 2 float64. bands may be null: all are in one.
void kw_measure(const double* exact, const void* answer, int kind, const uint8_t* bands, int64_t count, double* sums,
                double* peak, int64_t* place) {
    if (kind == 0)
        measure([=](int64_t i) { return exact[i]; }, bands, count, sums, peak, place);
    else if (kind == 1)
        measure([=](int64_t i) { return static_cast<double>(static_cast<const float*>(answer)[i]) - exact[i]; }, bands,
                count, sums, peak, place);
    else
        measure([=](int64_t i) { return static_cast<const double*>(answer)[i] - exact[i]; }, bands, count, sums, peak,
                place);
}
}
