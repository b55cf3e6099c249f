package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

// printBatching prints what the server's controller decided for its syncs.
func printBatching() error {
	answer, err := http.Get(cmp.Or(os.Getenv("MONITOR_URL"), "http://127.0.0.1:8222") + "/varz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var varz struct {
		Batching map[string]struct {
			Limit, Batches, Items int
			ByReason              map[string]int `json:"by_reason"`
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&varz); err != nil {
		return err
	}
	syncs := varz.Batching["log_syncs"]
	fmt.Printf("the server's syncs: %d for %d writes, limit %d, by reason %v\n", syncs.Batches, syncs.Items, syncs.Limit, syncs.ByReason)
	return nil
}
