"""The fields that the served kinds have, with their types, in the compact form of ``domain.podfields``.

Those of Jobs and Pods stand there, because the console knows them too.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpupools.domain import podfields

_TEXT: Mapping[str, str] = {
    "ObjectReference": """
        kind string, namespace string, name string, uid string, apiVersion string, resourceVersion string,
        fieldPath string
    """,
    "Node": "metadata ObjectMeta, spec NodeSpec, status NodeStatus",
    "NodeSpec": """
        podCIDR string, podCIDRs []string, providerID string, unschedulable bool, taints []Taint, configSource any,
        externalID string
    """,
    "Taint": "key string, value string, effect string, timeAdded Time",
    "Namespace": "metadata ObjectMeta, spec NamespaceSpec, status NamespaceStatus",
    "NamespaceSpec": "finalizers []string",
    "ConfigMap": "metadata ObjectMeta, data map[string], binaryData map[[]byte], immutable bool",
    "Secret": "metadata ObjectMeta, data map[[]byte], stringData map[string], type string, immutable bool",
    "ServiceAccount": """
        metadata ObjectMeta, secrets []ObjectReference, imagePullSecrets []LocalObjectReference,
        automountServiceAccountToken bool
    """,
    "Event": """
        metadata ObjectMeta, involvedObject ObjectReference, reason string, message string, source EventSource,
        firstTimestamp Time, lastTimestamp Time, count int32, type string, eventTime Time, series EventSeries,
        action string,
        related ObjectReference, reportingComponent string, reportingInstance string
    """,
    "EventSource": "component string, host string",
    "EventSeries": "count int32, lastObservedTime Time",
    "NamespaceStatus": "phase string, conditions []StatusCondition",
    "NodeStatus": """
        capacity map[Quantity], allocatable map[Quantity], phase string, conditions []StatusCondition,
        addresses []NodeAddress, daemonEndpoints object, nodeInfo NodeSystemInfo, images []any, volumesInUse []string,
        volumesAttached []any, config object, runtimeHandlers []any, features object, declaredFeatures []string
    """,
    "NodeAddress": "type string, address string",
    "NodeSystemInfo": """
        machineID string, systemUUID string, bootID string, kernelVersion string, osImage string,
        containerRuntimeVersion string, kubeletVersion string, kubeProxyVersion string, operatingSystem string,
        architecture string, swap object
    """,
    "DaemonSetStatus": """
        currentNumberScheduled int32, numberMisscheduled int32, desiredNumberScheduled int32, numberReady int32,
        observedGeneration int64, updatedNumberScheduled int32, numberAvailable int32, numberUnavailable int32,
        collisionCount int32, conditions []StatusCondition
    """,
    "Lease": "metadata ObjectMeta, spec LeaseSpec",
    "LeaseSpec": """
        holderIdentity string, leaseDurationSeconds int32, acquireTime Time, renewTime Time, leaseTransitions int32,
        strategy string, preferredHolder string
    """,
    "PodDisruptionBudget": "metadata ObjectMeta, spec PodDisruptionBudgetSpec, status PodDisruptionBudgetStatus",
    "PodDisruptionBudgetSpec": """
        minAvailable IntOrString, selector LabelSelector, maxUnavailable IntOrString, unhealthyPodEvictionPolicy string
    """,
    "PodDisruptionBudgetStatus": """
        observedGeneration int64, disruptedPods object, disruptionsAllowed int32, currentHealthy int32,
        desiredHealthy int32, expectedPods int32, conditions []StatusCondition
    """,
    "PriorityClass": """
        metadata ObjectMeta, value int32, globalDefault bool, description string, preemptionPolicy string
    """,
    "DeleteOptions": """
        gracePeriodSeconds int64, preconditions Preconditions, orphanDependents bool, propagationPolicy string,
        dryRun []string, ignoreStoreReadErrorWithClusterBreakingPotential bool
    """,
    "Preconditions": "uid string, resourceVersion string",
    "Binding": "metadata ObjectMeta, target ObjectReference",
    "Eviction": "metadata ObjectMeta, deleteOptions DeleteOptions",
    "SelfSubjectAccessReview": "metadata ObjectMeta, spec SelfSubjectAccessReviewSpec, status any",
    "SelfSubjectAccessReviewSpec": """
        resourceAttributes ResourceAttributes, nonResourceAttributes NonResourceAttributes
    """,
    "ResourceAttributes": """
        namespace string, verb string, group string, version string, resource string, subresource string, name string,
        fieldSelector any, labelSelector any
    """,
    "NonResourceAttributes": "path string, verb string",
    "SelfSubjectRulesReview": "metadata ObjectMeta, spec SelfSubjectRulesReviewSpec, status any",
    "SelfSubjectRulesReviewSpec": "namespace string",
    "SelfSubjectReview": "metadata ObjectMeta, status any",
    "DaemonSet": "metadata ObjectMeta, spec DaemonSetSpec, status DaemonSetStatus",
    "DaemonSetSpec": """
        selector LabelSelector, template PodTemplateSpec, updateStrategy DaemonSetUpdateStrategy,
        minReadySeconds int32, revisionHistoryLimit int32
    """,
    "DaemonSetUpdateStrategy": "type string, rollingUpdate RollingUpdateDaemonSet",
    "RollingUpdateDaemonSet": "maxUnavailable IntOrString, maxSurge IntOrString",
}

# Struct -> field -> type.
STRUCTS: Mapping[str, Mapping[str, str]] = {**podfields.STRUCTS, **podfields.parsed(_TEXT)}
