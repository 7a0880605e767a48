from drivetrain.cli.main import main

main()
