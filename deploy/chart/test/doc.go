// Package chart tests the Helm chart of a PoP: Helm renders it, each manifest is decoded with the types of
// Kubernetes, and its pods run as processes of this machine. It is a module of its own, as Helm and these types are
// large.
package chart
