mod probe; #[test] fn x(){}
