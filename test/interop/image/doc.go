// Package image makes the guest with prepare.sh, which runs on this machine, and
// init.sh, which runs in the guest. Its only Go code tests the errors of prepare.sh.
package image
