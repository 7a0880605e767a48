"""Pods as pods of a Kubernetes cluster (docs/decisions/0011-kubernetes-pods.md)."""
