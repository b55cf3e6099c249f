module tidegate/peers

go 1.25.0

require (
	github.com/redis/go-redis/v9 v9.22.0
	github.com/redis/rueidis v1.0.79
	golang.org/x/sys v0.47.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
)
