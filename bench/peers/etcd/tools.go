//go:build tools

// Package peers pins the version of etcd that this directory builds. No code of the package runs.
package peers

import _ "go.etcd.io/etcd/server/v3"
