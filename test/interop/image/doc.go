// Package image makes the guest: prepare.sh on this machine, init.sh in the guest.
// There is no Go in it but the tests of what prepare.sh does when it cannot.
package image
