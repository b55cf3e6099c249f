package main

import (
	"math"
	"math/bits"
	"sync/atomic"
)

const perOctave = 128

// A histogram that all callers write to, with buckets that grow with the value: exact below 128, then 128 buckets an
// octave, which is an error of at most 0.8 %.
type histogram struct {
	counts [perOctave * 58]atomic.Uint64
	count  atomic.Uint64
	sum    atomic.Uint64
}

func (h *histogram) record(value uint64) {
	h.counts[bucket(value)].Add(1)
	h.count.Add(1)
	h.sum.Add(value)
}

func (h *histogram) clear() {
	for i := range h.counts {
		h.counts[i].Store(0)
	}
	h.count.Store(0)
	h.sum.Store(0)
}

func (h *histogram) mean() (float64, bool) {
	count := h.count.Load()
	return float64(h.sum.Load()) / float64(count), count > 0
}

// Returns the middle of the bucket that holds the q-quantile; 0 if the histogram is empty.
func (h *histogram) quantile(q float64) float64 {
	rank := max(1, uint64(math.Ceil(float64(h.count.Load())*q)))
	var seen uint64
	for at := range h.counts {
		seen += h.counts[at].Load()
		if seen >= rank {
			return middle(at)
		}
	}
	return 0
}

func bucket(value uint64) int {
	if value < perOctave {
		return int(value)
	}
	shift := bits.Len64(value) - 8
	return (shift+1)*perOctave + int(value>>shift) - perOctave
}

func middle(bucket int) float64 {
	if bucket < perOctave {
		return float64(bucket)
	}
	shift := bucket/perOctave - 1
	return (float64(bucket%perOctave+perOctave) + 0.5) * math.Exp2(float64(shift))
}
