module drivetrain.test/kubeconform

go 1.26

require github.com/yannh/kubeconform v0.8.0
