//go:build tools

// Package peers pins the programs this directory builds; nothing here is run.
package peers

import (
	_ "github.com/nats-io/nats-server/v2"
	_ "github.com/nats-io/natscli/nats"
)
