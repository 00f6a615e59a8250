// Package heap is the memory that an adapter hands out for regions. Each adapter has
// one mapping outside of the Go heap (heap.go). Other processes can map it if it is a
// file in memory (shared.go). part.go counts the regions over each
// part of that mapping. populate.go checks that the program itself may access the
// memory that it registers.
package heap
