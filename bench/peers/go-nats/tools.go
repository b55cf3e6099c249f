//go:build tools

// Package peers pins the versions of the programs that this directory builds. No code of the package runs.
package peers

import (
	_ "github.com/nats-io/nats-server/v2"
	_ "github.com/nats-io/natscli/nats"
)
