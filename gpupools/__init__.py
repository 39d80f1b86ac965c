"""GPU node pools on Kubernetes: modes, jobs, approvals and what every card holds."""
