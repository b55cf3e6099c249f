// The stand-in for the embedded nats-server of orbit.go's tests, under its module path.
module github.com/nats-io/nats-server/v2

go 1.25.0
