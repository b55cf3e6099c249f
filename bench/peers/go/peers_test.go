package main

import (
	"math"
	"testing"
)

func TestQuantilesAreWithinABucket(t *testing.T) {
	var h histogram
	for value := range uint64(100_000) {
		h.record(value + 1)
	}
	for _, q := range []float64{0.001, 0.5, 0.99, 1} {
		if got, exact := h.quantile(q), 100_000*q; math.Abs(got-exact) > exact*0.008+1 {
			t.Errorf("%v: %v for %v", q, got, exact)
		}
	}
	h.record(math.MaxUint64)
	if bucket(math.MaxUint64) >= len(h.counts) {
		t.Error("the largest value has no bucket")
	}
}

func TestRequestsAreChecked(t *testing.T) {
	for line, want := range map[string]string{
		"nothing":    "unknown request: nothing",
		"load x":     "not key=value: x",
		"measure":    "nothing to measure: load first",
		"rest":       "",
		"load addr=": "load needs system=",
	} {
		var running *load
		_, err := handle(line, &running)
		if want == "" && err == nil {
			continue
		}
		if err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("%s: %v, not %q", line, err, want)
		}
	}
	bad := "load system=none addr=x command=fly value=0 callers=1"
	var running *load
	if _, err := handle(bad, &running); err == nil || running != nil {
		t.Error("a load that cannot be was started")
	}
}
