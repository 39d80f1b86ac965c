"""The fields that the served kinds have, with their types, in a compact form.

A type is a Go one (string, int32, int64, bool, []byte), Quantity, IntOrString, Time, the name of a struct below,
``[]X`` a list of X, or ``map[X]`` a map from text to X. Parts that GPU users do not meet are ``any`` or ``object``:
not looked into.
"""

from __future__ import annotations

from collections.abc import Mapping

_TEXT: Mapping[str, str] = {
    "ObjectMeta": """
        name string, generateName string, namespace string, selfLink string, uid string, resourceVersion string,
        generation int64, creationTimestamp Time, deletionTimestamp Time, deletionGracePeriodSeconds int64,
        labels map[string], annotations map[string], ownerReferences []OwnerReference, finalizers []string,
        managedFields []any
    """,
    "OwnerReference": """
        apiVersion string, kind string, name string, uid string, controller bool, blockOwnerDeletion bool
    """,
    "LocalObjectReference": "name string",
    "ObjectReference": """
        kind string, namespace string, name string, uid string, apiVersion string, resourceVersion string,
        fieldPath string
    """,
    "LabelSelector": "matchLabels map[string], matchExpressions []LabelSelectorRequirement",
    "LabelSelectorRequirement": "key string, operator string, values []string",
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
    "StatusCondition": """
        type string, status string, observedGeneration int64, lastProbeTime Time, lastHeartbeatTime Time,
        lastTransitionTime Time, reason string, message string
    """,
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
    "PodStatus": """
        observedGeneration int64, phase string, conditions []StatusCondition, message string, reason string,
        nominatedNodeName string, hostIP string, hostIPs []object, podIP string, podIPs []PodIP, startTime Time,
        initContainerStatuses []ContainerStatus, containerStatuses []ContainerStatus, qosClass string,
        ephemeralContainerStatuses []ContainerStatus, resize string, resourceClaimStatuses []any,
        extendedResourceClaimStatus object, allocatedResources map[Quantity], resources ResourceRequirements
    """,
    "PodIP": "ip string",
    "ContainerStatus": """
        name string, state ContainerState, lastState ContainerState, ready bool, restartCount int32, image string,
        imageID string, containerID string, started bool, allocatedResources map[Quantity],
        resources ResourceRequirements, volumeMounts []any, user object, allocatedResourcesStatus []any,
        stopSignal string
    """,
    "ContainerState": """
        waiting ContainerStateWaiting, running ContainerStateRunning, terminated ContainerStateTerminated
    """,
    "ContainerStateWaiting": "reason string, message string",
    "ContainerStateRunning": "startedAt Time",
    "ContainerStateTerminated": """
        exitCode int32, signal int32, reason string, message string, startedAt Time, finishedAt Time,
        containerID string
    """,
    "JobStatus": """
        conditions []StatusCondition, startTime Time, completionTime Time, active int32, terminating int32,
        succeeded int32, failed int32, completedIndexes string, failedIndexes string, uncountedTerminatedPods object,
        ready int32
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
    "Pod": "metadata ObjectMeta, spec PodSpec, status PodStatus",
    "PodTemplateSpec": "metadata ObjectMeta, spec PodSpec",
    "PodSpec": """
        volumes []Volume, initContainers []Container, containers []Container, ephemeralContainers []any,
        restartPolicy string, terminationGracePeriodSeconds int64, activeDeadlineSeconds int64, dnsPolicy string,
        nodeSelector map[string], serviceAccountName string, serviceAccount string, automountServiceAccountToken bool,
        nodeName string, hostNetwork bool, hostPID bool, hostIPC bool, shareProcessNamespace bool,
        securityContext PodSecurityContext, imagePullSecrets []LocalObjectReference, hostname string,
        subdomain string, affinity Affinity, schedulerName string, tolerations []Toleration, hostAliases []HostAlias,
        priorityClassName string, priority int32, dnsConfig any, readinessGates []PodReadinessGate,
        runtimeClassName string, enableServiceLinks bool, preemptionPolicy string, overhead map[Quantity],
        topologySpreadConstraints []TopologySpreadConstraint, setHostnameAsFQDN bool, os PodOS, hostUsers bool,
        schedulingGates []PodSchedulingGate, resourceClaims []PodResourceClaim, resources ResourceRequirements,
        hostnameOverride string
    """,
    "PodReadinessGate": "conditionType string",
    "PodSchedulingGate": "name string",
    "PodOS": "name string",
    "PodResourceClaim": "name string, resourceClaimName string, resourceClaimTemplateName string",
    "HostAlias": "ip string, hostnames []string",
    "TopologySpreadConstraint": """
        maxSkew int32, topologyKey string, whenUnsatisfiable string, labelSelector LabelSelector, minDomains int32,
        nodeAffinityPolicy string, nodeTaintsPolicy string, matchLabelKeys []string
    """,
    "PodSecurityContext": """
        seLinuxOptions any, windowsOptions any, runAsUser int64, runAsGroup int64, runAsNonRoot bool,
        supplementalGroups []int64, supplementalGroupsPolicy string, fsGroup int64, sysctls []any,
        fsGroupChangePolicy string, seccompProfile any, appArmorProfile any, seLinuxChangePolicy string
    """,
    "SecurityContext": """
        capabilities Capabilities, privileged bool, seLinuxOptions any, windowsOptions any, runAsUser int64,
        runAsGroup int64, runAsNonRoot bool, readOnlyRootFilesystem bool, allowPrivilegeEscalation bool,
        procMount string, seccompProfile any, appArmorProfile any
    """,
    "Capabilities": "add []string, drop []string",
    "Container": """
        name string, image string, command []string, args []string, workingDir string, ports []ContainerPort,
        envFrom []EnvFromSource, env []EnvVar, resources ResourceRequirements, resizePolicy []ContainerResizePolicy,
        restartPolicy string, restartPolicyRules []any, volumeMounts []VolumeMount, volumeDevices []VolumeDevice,
        livenessProbe any, readinessProbe any, startupProbe any, lifecycle any, terminationMessagePath string,
        terminationMessagePolicy string, imagePullPolicy string, securityContext SecurityContext, stdin bool,
        stdinOnce bool, tty bool
    """,
    "ContainerPort": "name string, hostPort int32, containerPort int32, protocol string, hostIP string",
    "ContainerResizePolicy": "resourceName string, restartPolicy string",
    "EnvFromSource": "prefix string, configMapRef any, secretRef any",
    "EnvVar": "name string, value string, valueFrom EnvVarSource",
    "EnvVarSource": "fieldRef any, resourceFieldRef any, configMapKeyRef any, secretKeyRef any, fileKeyRef any",
    "ResourceRequirements": "limits map[Quantity], requests map[Quantity], claims []ResourceClaim",
    "ResourceClaim": "name string, request string",
    "VolumeMount": """
        name string, readOnly bool, recursiveReadOnly string, mountPath string, subPath string,
        mountPropagation string, subPathExpr string
    """,
    "VolumeDevice": "name string, devicePath string",
    "Volume": """
        name string, hostPath HostPathVolumeSource, emptyDir EmptyDirVolumeSource, gcePersistentDisk any,
        awsElasticBlockStore any, gitRepo any, secret SecretVolumeSource, nfs NFSVolumeSource, iscsi any,
        glusterfs any, persistentVolumeClaim PersistentVolumeClaimVolumeSource, rbd any, flexVolume any, cinder any,
        cephfs any, flocker any, downwardAPI any, fc any, azureFile any, configMap ConfigMapVolumeSource,
        vsphereVolume any, quobyte any, azureDisk any, photonPersistentDisk any, projected any, portworxVolume any,
        scaleIO any, storageos any, csi any, ephemeral any, image any
    """,
    "HostPathVolumeSource": "path string, type string",
    "EmptyDirVolumeSource": "medium string, sizeLimit Quantity",
    "SecretVolumeSource": "secretName string, items []KeyToPath, defaultMode int32, optional bool",
    "ConfigMapVolumeSource": "name string, items []KeyToPath, defaultMode int32, optional bool",
    "KeyToPath": "key string, path string, mode int32",
    "NFSVolumeSource": "server string, path string, readOnly bool",
    "PersistentVolumeClaimVolumeSource": "claimName string, readOnly bool",
    "Toleration": "key string, operator string, value string, effect string, tolerationSeconds int64",
    "Affinity": "nodeAffinity NodeAffinity, podAffinity PodAffinity, podAntiAffinity PodAffinity",
    "NodeAffinity": """
        requiredDuringSchedulingIgnoredDuringExecution NodeSelector,
        preferredDuringSchedulingIgnoredDuringExecution []PreferredSchedulingTerm
    """,
    "NodeSelector": "nodeSelectorTerms []NodeSelectorTerm",
    "NodeSelectorTerm": "matchExpressions []NodeSelectorRequirement, matchFields []NodeSelectorRequirement",
    "NodeSelectorRequirement": "key string, operator string, values []string",
    "PreferredSchedulingTerm": "weight int32, preference NodeSelectorTerm",
    "PodAffinity": """
        requiredDuringSchedulingIgnoredDuringExecution []PodAffinityTerm,
        preferredDuringSchedulingIgnoredDuringExecution []WeightedPodAffinityTerm
    """,
    "WeightedPodAffinityTerm": "weight int32, podAffinityTerm PodAffinityTerm",
    "PodAffinityTerm": """
        labelSelector LabelSelector, namespaces []string, topologyKey string, namespaceSelector LabelSelector,
        matchLabelKeys []string, mismatchLabelKeys []string
    """,
    "Job": "metadata ObjectMeta, spec JobSpec, status JobStatus",
    "JobSpec": """
        parallelism int32, completions int32, activeDeadlineSeconds int64, podFailurePolicy PodFailurePolicy,
        successPolicy SuccessPolicy,
        backoffLimit int32, backoffLimitPerIndex int32, maxFailedIndexes int32, selector LabelSelector,
        manualSelector bool, template PodTemplateSpec, ttlSecondsAfterFinished int32, completionMode string,
        suspend bool, podReplacementPolicy string, managedBy string
    """,
    "PodFailurePolicy": "rules []PodFailurePolicyRule",
    "PodFailurePolicyRule": """
        action string, onExitCodes PodFailurePolicyOnExitCodesRequirement,
        onPodConditions []PodFailurePolicyOnPodConditionsPattern
    """,
    "PodFailurePolicyOnExitCodesRequirement": "containerName string, operator string, values []int32",
    "PodFailurePolicyOnPodConditionsPattern": "type string, status string",
    "SuccessPolicy": "rules []SuccessPolicyRule",
    "SuccessPolicyRule": "succeededIndexes string, succeededCount int32",
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


def _parsed(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for entry in text.split(","):
        name, type_ = entry.split()
        fields[name] = type_
    return fields


# Struct -> field -> type.
STRUCTS: Mapping[str, Mapping[str, str]] = {name: _parsed(text) for name, text in _TEXT.items()}
