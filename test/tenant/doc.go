// Package tenant is a process whose memory a test reaches, as a daemon reaches that of its
// clients. The process is the test binary itself, started again.
package tenant
