// Package heap is the memory that an adapter hands out for regions: one mapping for
// each adapter, outside of the Go heap (heap.go), the parts of it and how many regions
// lie over each (part.go), and the check that the program itself may access what it
// registers (populate.go).
package heap
