package rdma

import (
	"cmp"
	"maps"
	"slices"
)

// objects are the objects of an adapter that only a hand-over must find. Adapter.mu guards
// them. They are nil if the adapter cannot be handed over.
type objects struct {
	pds map[*PD]struct{}
	mrs map[*MR]struct{}
	mws map[*MW]struct{}
}

// keepObjects makes the adapter remember its objects, so that it can be handed over.
func (a *Adapter) keepObjects() {
	a.objects = objects{map[*PD]struct{}{}, map[*MR]struct{}{}, map[*MW]struct{}{}}
}

// remember adds an object to a list of objects, and forget removes it.
func remember[T comparable](a *Adapter, list *map[T]struct{}, v T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if *list != nil {
		(*list)[v] = struct{}{}
	}
}

func forget[T comparable](a *Adapter, list *map[T]struct{}, v T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(*list, v)
}

// listed returns the objects of a list.
func listed[T comparable](a *Adapter, list *map[T]struct{}) (out []T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for v := range *list {
		out = append(out, v)
	}
	return out
}

// sorted returns the values of a map in the order of its keys.
func sorted[K cmp.Ordered, V any](m map[K]V) (list []V) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[k])
	}
	return list
}
